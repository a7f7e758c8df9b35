"""Built-in metrics by name, with decoders and truth files, over the answers of programs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import qglow
from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array
from qglow.metrics.built_in import DECODED, NAMES
from qglow.report.comparison import compare
from qglow.report.comparison_result import FLOAT, INT8
from qglow.report.task_metric import Answers, data_labels, has_own_function, open_metric
from tests.unit.report.models import Function, samples
from tests.zoo import REPOSITORY

DECODER = """
import numpy as np
from qglow.metrics import Boxes

def decode(outputs, photos):
    "A box as wide as the photo for the best class."
    for scores, photo in zip(*outputs.values(), photos):
        corners = np.array([[0.0, 0.0, photo.width, photo.height]])
        yield Boxes(corners, np.array([scores.argmax()]), np.array([1.0]))

def of_masks(outputs, masks):
    return []
"""


def answers(outputs: dict[str, Array], keys: list[str], inputs: dict[str, Array] | None = None) -> Answers:
    split = {name: [array] for name, array in outputs.items()}
    return Answers(True, keys, [None] * len(keys), split, {n: [a] for n, a in (inputs or {}).items()})


def coco(folder: Path, boxes: list[list[float]]) -> Path:
    path = folder / "boxes.json"
    images = [{"id": i, "file_name": f"{i}.jpg", "width": 100, "height": 50} for i in range(len(boxes))]
    rows = [{"image_id": i, "category_id": 1, "bbox": box} for i, box in enumerate(boxes)]
    path.write_text(json.dumps({"images": images, "annotations": rows, "categories": [{"id": 1}]}))
    return path


def test_map_of_final_boxes_by_annotations(tmp_path: Path) -> None:
    path = coco(tmp_path, [[0, 0, 10, 10], [0, 0, 20, 20]])
    rows = np.array([[[0, 0, 10, 10, 0.9, 0]], [[0, 0, 20, 15, 0.8, 0]]])
    given = answers({"y": rows}, ["val/0.jpg", "val/1.jpg"])
    for name, value in (("map50", 100.0), ("f1", 100.0), ("map", 10 * (6 + 4 * 51 / 101))):
        metric = open_metric(name, path)
        assert metric.reads_truth and not metric.is_relative
        assert metric.of(given, given) == pytest.approx(value), name
        assert data_labels(metric, path) is None
    shares = answers({"y": rows / np.array([100, 50, 100, 50, 1, 1])}, ["0.jpg", "1.jpg"])
    assert open_metric("map50:relative_boxes", path).of(shares, shares) == pytest.approx(100.0)


def test_boxes_of_float_take_the_place_of_the_truth() -> None:
    rows = np.array([[[0, 0, 10, 10, 0.9, 0], [0, 0, 30, 30, 0.4, 0]]])
    metric = open_metric("f1_float")
    assert metric.is_relative and not metric.reads_truth
    kept, lost = answers({"y": rows}, ["a"]), answers({"y": rows * [1, 1, 1, 1, 0.5, 1]}, ["a"])
    assert metric.of(kept, kept) == 100.0
    assert metric.of(lost, kept) == 0.0


def test_sequences_are_decoded_and_compared(tmp_path: Path) -> None:
    path = tmp_path / "plates.json"
    path.write_text(json.dumps({"a.png": [1, 2], "b.png": [2]}))
    scores = np.eye(3)[np.array([[1, 1, 0, 2], [2, 0, 2, 0]])]
    given = answers({"y": scores}, ["a.png", "b.png"])
    assert open_metric("exact_match", path).of(given, given) == 50.0
    assert open_metric("edit_accuracy:ctc", path).of(given, given) == pytest.approx(100 * 2 / 3)
    assert open_metric("exact_match:ctc_last", path).of(given, given) == 0.0


def test_tokens_come_from_the_inputs() -> None:
    tokens = np.array([[0, 1, 2]])
    given = answers({"y": np.zeros((1, 3, 4))}, ["a"], {"x": tokens})
    assert open_metric("log_likelihood").of(given, given) == pytest.approx(-math.log(4))


def test_inputs_are_kept_for_a_metric_that_asks_for_them() -> None:
    def size(inputs: dict[str, Array]) -> float:
        return float(sum(array.size for array in inputs.values()))

    data = samples(3)
    found = compare(Function(), Function(), data, metric=open_metric(size)).metric
    expected = float(sum(array.size for sample in samples(3) for array in sample.inputs.values()))
    assert found is not None and found.values[INT8] == expected


def test_a_decoder_of_the_user_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = REPOSITORY / "calib_data" / "test.npz"
    with np.load(data) as arrays:
        labels = arrays["label"][:20]
    images = [{"id": i, "file_name": f"test.npz[{i}]", "width": 8, "height": 4} for i in range(20)]
    rows = [{"image_id": i, "category_id": int(c), "bbox": [0, 0, 8, 4]} for i, c in enumerate(labels)]
    document = {"images": images, "annotations": rows, "categories": [{"id": i} for i in range(10)]}
    path = tmp_path / "boxes.json"
    path.write_text(json.dumps(document))
    (tmp_path / "boxes_of_digits.py").write_text(DECODER)
    monkeypatch.chdir(tmp_path)
    loaded = qglow.load_model(REPOSITORY / "calib_data" / "digits.onnx")
    model = loaded.quantize(loaded.profile(REPOSITORY / "calib_data" / "calib.npz", samples=32), repair=False)
    found = qglow.compare(model, data, samples=20, labels=path, metric="f1:boxes_of_digits:decode", threads=1)
    assert found.metric is not None and found.metric.name == "f1:boxes_of_digits:decode"
    # A box is right where its class is: F1 of one box a photo is the accuracy, which the data has too.
    top1 = found.accuracy[FLOAT].top1
    assert top1 > 0.9 and found.metric.values[FLOAT] == pytest.approx(100 * top1)
    same = qglow.compare(model, data, samples=20, metric="top1", threads=1)
    assert same.metric is not None and same.metric.values == pytest.approx(found.metric.values)
    with pytest.raises(UsageError, match="f1:boxes_of_digits:of_masks asks for masks; its parameters are"):
        open_metric("f1:boxes_of_digits:of_masks")
    with pytest.raises(UsageError, match="the metric needs `labels`: a file with what is true"):
        qglow.compare(model, data, samples=2, metric="f1:boxes_of_digits:decode", threads=1)
    with pytest.raises(DataError, match=r"does not know sample test.npz\[20\]"):
        qglow.compare(model, data, select="20:21", labels=path, metric="f1:boxes_of_digits:decode", threads=1)
    with pytest.raises(UsageError, match="are no final boxes; a decoder of yours makes them"):
        qglow.compare(model, data, samples=2, labels=path, metric="map50", threads=1)


def test_mistakes_in_names_are_said() -> None:
    for name in ("map5", "psnr:", "map50:", ""):
        with pytest.raises(UsageError, match="there are psnr, .*, map50, .* and module:function"):
            open_metric(name)
    with pytest.raises(UsageError, match="decoders are boxes, relative_boxes, ctc, ctc_last, .* and module"):
        open_metric("map50:relative")
    with pytest.raises(UsageError, match="metric absent:decode: cannot import absent"):
        open_metric("map50:absent:decode")


def test_names_of_own_functions_by_their_form() -> None:
    assert has_own_function("a.b:c") and has_own_function("map50:a.b:c")
    assert not has_own_function("psnr:a:b") and not has_own_function("map50")


def test_a_metric_with_a_truth_file_is_told_apart_by_it(tmp_path: Path) -> None:
    first = open_metric("map50", coco(tmp_path, [[0, 0, 1, 1]])).identity
    second = open_metric("map50", coco(tmp_path, [[0, 0, 2, 2]])).identity
    assert first.startswith("map50 ") and first != second
    assert open_metric("psnr").identity == "psnr"


def test_every_name_opens() -> None:
    for name in NAMES:
        metric = open_metric(name)
        assert metric.name == name and metric.wanted
        assert metric.reads_truth == (name in DECODED and DECODED[name].truth != "expected")
