"""The recipes that are shipped prepare data as the models were trained: float accuracy is as published."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from qglow.core.types import Array
from qglow.profiling.datasets import open_data
from qglow.profiling.samples import InputSpec, batches
from qglow.recipe import load_recipe
from tests.zoo import REPOSITORY, zoo_model, zoo_path

# model, data, selection, float32 top-1 in per cent of exactly these samples
CASES = [
    ("digits", "calib_data/test.npz", None, 99.16),
    ("mlkws_ds_cnn_l", "data/speech_commands_350.npz", None, 84.86),
    ("mlkws_dnn_l", "data/speech_commands_350.npz", None, 73.14),
    ("mlperftiny_kws_dscnn", "data/kws01_mfcc.npz", None, 91.30),
    ("mnist_8", "data/mnist_t10k.npz", "::5", 99.05),
    ("mlperftiny_resnet8", "data/cifar10.npz[input=x_test,label=y_test]", None, 76.20),
    ("cifar10_resnet32", "data/cifar10.npz[input=x_test,label=y_test]", "::2", 83.50),
    ("mobilenet_v1_0.25_224", "data/imagenet_sample", None, 56.70),
    ("squeezenet1.1_caffe", "data/imagenet_sample", "::2", 59.20),
    ("cifar10_resnet20", "data/cifar10.npz[input=x_test,label=y_test]", None, 81.30),
    ("squeezenet1.1", "data/imagenet_sample", "::3", 64.37),
    ("mobilenetv2_tin202", "data/tin202/test", "::6", 57.57),
    ("resnet50v2s3_tin202", "data/tin202/test", "::16", 38.58),
]


def _data(relative: str) -> str:
    if relative.startswith("calib_data/"):
        return str(REPOSITORY / relative)
    path, bracket, mapping = relative.partition("[")
    return f"{zoo_path(path)}{bracket}{mapping}"


def _session(model: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(model), options)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "data", "select", "expected"), CASES, ids=[case[0] for case in CASES])
def test_recipe_gives_the_float_accuracy(model: str, data: str, select: str | None, expected: float) -> None:
    session = _session(zoo_model(model))
    model_input = session.get_inputs()[0]
    specs = {model_input.name: InputSpec(tuple(model_input.shape[1:]), np.dtype(np.float32))}
    recipe = load_recipe(REPOSITORY / "recipes" / f"{model}.yaml")
    right = []
    size = model_input.shape[0] if isinstance(model_input.shape[0], int) else 10
    for batch in batches(open_data(_data(data), specs, recipe=recipe, select=select), size):
        predicted = session.run(None, batch.inputs)[0].reshape(len(batch), -1).argmax(1)
        right += [int(a) == b for a, b in zip(predicted, batch.labels, strict=True)]
    # A sample or two may flip between versions of the image decoder and of onnxruntime.
    assert 100 * np.mean(right) == pytest.approx(expected, abs=max(0.4, 200 / len(right)))


def _outputs(model: str, data: str, select: str | None) -> Iterator[tuple[str, Array, Array]]:
    """Name, input and first output of every sample under the model's recipe."""
    session = _session(zoo_model(model))
    model_input = session.get_inputs()[0]
    specs = {model_input.name: InputSpec(tuple(model_input.shape[1:]), np.dtype(np.float32))}
    recipe = load_recipe(REPOSITORY / "recipes" / f"{model}.yaml")
    for sample in open_data(_data(data), specs, recipe=recipe, select=select):
        x = sample.inputs[model_input.name]
        yield sample.key, x, session.run(None, {model_input.name: x[None]})[0][0]


def _labelled(split: str) -> dict[str, list[tuple[int, float]]]:
    """Class and share of the area of every box, by the name of the photo."""
    entries = json.loads(zoo_path("data/coco256/labels.json").read_text())[split]
    found = {}
    for entry in entries:
        width, height = entry["size"]
        boxes = [(b[0], (b[3] - b[1]) * (b[4] - b[2]) / (width * height)) for b in entry["boxes"]]
        found[Path(entry["file"]).name] = boxes
    return found


@pytest.mark.slow
def test_visual_wake_words_finds_persons() -> None:
    """A person is one whose box has more than 0.5 % of the area; smaller ones are left out."""
    right = []
    for split in ("val", "calib"):
        labelled = _labelled(split)
        for key, _, scores in _outputs("mlperftiny_vww96", f"data/coco256/{split}", None):
            largest = max((area for kind, area in labelled[key] if kind == 0), default=0.0)
            if largest == 0.0 or largest > 0.005:
                right.append(int(scores.argmax()) == int(largest > 0.005))
    assert 100 * np.mean(right) == pytest.approx(86.24, abs=0.5)


def _best_of_yolox(output: Array) -> int | None:
    return int((output[:, 4:5] * output[:, 5:]).max(axis=0).argmax())


def _best_of_fastestdet(output: Array) -> int | None:
    cells = output.reshape(85, -1)
    return int((cells[0] ** 0.6 * cells[5:] ** 0.4).max(axis=1).argmax())


# COCO's class for each of the 21 of PASCAL VOC.
VOC = (None, 4, 1, 14, 8, 39, 5, 2, 15, 56, 19, 60, 16, 17, 3, 0, 58, 18, 57, 6, 62)


def _largest_of_deeplab(output: Array) -> int | None:
    areas = np.bincount(output.argmax(axis=0).reshape(-1), minlength=21)
    areas[0] = 0
    return VOC[int(areas.argmax())] if areas.max() > 40 else None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "best", "at_least"),
    [
        ("yolox_nano", _best_of_yolox, 95.0),
        ("fastestdet", _best_of_fastestdet, 88.0),
        ("deeplabv3_mnv2_voc", _largest_of_deeplab, 88.0),
    ],
)
def test_the_surest_thing_in_a_photo_is_really_there(
    model: str, best: Callable[[Array], int | None], at_least: float
) -> None:
    labelled, right = _labelled("val"), []
    for key, _, output in _outputs(model, "data/coco256/val", "::2"):
        found, classes = best(output), {kind for kind, _ in labelled[key]}
        if found is not None and classes:
            right.append(found in classes)
    assert 100 * np.mean(right) >= at_least


@pytest.mark.slow
def test_super_resolution_keeps_the_picture() -> None:
    """The mean of every 3 x 3 pixels of the result is the pixel that it was made of."""
    for _, x, output in _outputs("super_resolution_10", "data/imagenet_sample", "::200"):
        small = output.reshape(224, 3, 224, 3).mean(axis=(1, 3))
        assert -10 * np.log10(np.mean((small - x[0]) ** 2)) > 35.0
