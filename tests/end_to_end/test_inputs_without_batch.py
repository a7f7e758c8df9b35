"""Models whose inputs have no batch axis: an image [3, H, W] is one sample, not three."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from PIL import Image

import qglow
from qglow.core.errors import DataError, QglowError
from qglow.core.types import Array
from qglow.report.comparison_result import FLOAT, INT8
from qglow.report.evaluation import run_over_data
from qglow.toolchain.calibration import CalibrationRuns
from tests.unit.importer.cases import ints
from tests.unit.importer.tiny import save, tiny_model

SIZE, SAMPLES, CLASSES = 8, 12, 5
RECIPE = "preprocessing:\n  resize: [8, 8]\n  channels: RGB\n  scale: 1/255\n"


def classifier(folder: Path, scores: tuple[int, ...], gain: tuple[int, ...] | None = None) -> Path:
    """Conv, mean and Gemm over an image x [3, 8, 8], and maybe a factor; `scores` is the output's shape."""
    random = np.random.default_rng(1)
    nodes = [
        helper.make_node("Unsqueeze", ["x", "first"], ["image"]),
        helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["rows"]),
        helper.make_node("Gemm", ["rows", "v"], ["scores"]),
        helper.make_node("Reshape", ["scores", "shape"], ["plain" if gain is not None else "y"]),
    ]
    inputs: dict[str, tuple[int, ...]] = {"x": (3, SIZE, SIZE)}
    if gain is not None:
        nodes.append(helper.make_node("Mul", ["plain", "gain"], ["y"]))
        inputs["gain"] = gain
    constants = {
        "first": ints(0),
        "shape": ints(*scores),
        "w": random.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "v": random.normal(size=(8, CLASSES)).astype(np.float32),
    }
    return save(tiny_model(nodes, inputs, ["y"], constants), folder)


def _ranges(profile: qglow.Profile) -> dict[str, tuple[float, float]]:
    return {v.name: (v.statistics.low, v.statistics.high) for v in profile.values.values()}


def images(count: int = SAMPLES) -> Array:
    random = np.random.default_rng(2)
    contrast = random.uniform(0.2, 2.0, (count, 3, 1, 1))
    return (random.normal(size=(count, 3, SIZE, SIZE)) * contrast).astype(np.float32)


def answers(model: qglow.Model, arrays: Mapping[str, Array]) -> list[Array]:
    count = len(arrays["x"])
    shapes = model.shapes
    return [
        model.interpret({n: a[i].reshape(shapes[n]) for n, a in arrays.items()})["y"] for i in range(count)
    ]


@pytest.mark.parametrize("scores", [(CLASSES,), (1, CLASSES)])
def test_an_image_without_batch_is_one_sample_from_the_profile_to_the_accuracy(
    tmp_path: Path, scores: tuple[int, ...]
) -> None:
    path, x = classifier(tmp_path, scores), images()
    model = qglow.load_model(path)
    expected = answers(model, {"x": x})
    labels = np.array([int(np.argmax(y)) for y in expected])
    profile = model.profile({"x": x})
    assert profile.samples == SAMPLES and profile.kept
    qglow.save_profile(profile, tmp_path / "profile.yaml")
    again = qglow.load_profile(tmp_path / "profile.yaml")
    assert all(sample.whole and sample.inputs["x"].shape == x[0].shape for sample in again.kept)
    quantized = model.quantize(again)
    assert quantized.verdict is not None and quantized.verdict.samples == len(profile.kept)
    compared = qglow.compare(quantized, {"x": x, "label": labels})
    assert compared.samples == SAMPLES
    assert compared.accuracy[FLOAT].top1 == 1.0 and compared.accuracy[INT8].samples == SAMPLES
    assert qglow.compare_layers(quantized, {"x": x}).samples == SAMPLES
    for (_, found), wanted in zip(run_over_data(model.compile(), {"x": x}), expected, strict=True):
        np.testing.assert_allclose(found["y"].reshape(-1), wanted.reshape(-1), rtol=1e-4, atol=1e-5)


def test_every_kind_of_data_gives_the_same_samples(tmp_path: Path) -> None:
    model, x = qglow.load_model(classifier(tmp_path, (CLASSES,))), images(4)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    for number, image in enumerate(x):
        folder = tmp_path / "sets" / f"test_data_set_{number}"
        folder.mkdir(parents=True)
        tensor: onnx.TensorProto = numpy_helper.from_array(image)
        (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    wanted = model.profile({"x": x})
    every: list[object] = [
        x,
        list(x),
        [x[:3], x[3:]],
        [{"x": image} for image in x],
        iter(x),
        lambda: iter(x),
    ]
    paths = [tmp_path / "x.npy", tmp_path / "x.npz", tmp_path / "sets"]
    for data in [*every, *paths]:
        found = model.profile(data)  # type: ignore[arg-type]
        assert (found.samples, found.data.hex) == (4, wanted.data.hex), data
        assert _ranges(found) == _ranges(wanted)
    assert model.profile(x[0]).samples == 1


def test_a_folder_of_images_feeds_an_input_without_batch(tmp_path: Path) -> None:
    model = qglow.load_model(classifier(tmp_path, (CLASSES,)))
    random = np.random.default_rng(3)
    (tmp_path / "images").mkdir()
    for number in range(3):
        pixels = random.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    with pytest.raises(DataError, match=r"makes \[3, 8, 8\] of them"):
        model.profile(tmp_path / "images")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    recipe = qglow.load_recipe(tmp_path / "recipe.yaml")
    assert model.profile(tmp_path / "images", recipe=recipe).samples == 3


@pytest.mark.parametrize(
    ("gain", "array"),
    [((1,), (4,)), ((1,), (4, 1)), ((), (4,)), ((CLASSES,), (4, CLASSES))],
)
def test_an_image_without_batch_beside_other_inputs(
    tmp_path: Path, gain: tuple[int, ...], array: tuple[int, ...]
) -> None:
    model = qglow.load_model(classifier(tmp_path, (CLASSES,), gain))
    data = {"x": images(4), "gain": np.random.default_rng(4).uniform(1, 2, array).astype(np.float32)}
    labels = np.array([int(np.argmax(y)) for y in answers(model, data)])
    profile = model.profile(data)
    qglow.save_profile(profile, tmp_path / "profile.yaml")
    quantized = model.quantize(qglow.load_profile(tmp_path / "profile.yaml"))
    assert quantized.verdict is not None and quantized.verdict.samples == 4
    compared = qglow.compare(quantized, {**data, "label": labels})
    assert compared.accuracy[FLOAT].top1 == 1.0 and compared.accuracy[FLOAT].samples == 4


def test_inputs_that_happen_to_begin_alike_are_whole_where_the_data_is(tmp_path: Path) -> None:
    model = qglow.load_model(_pair(tmp_path))
    random = np.random.default_rng(5)
    data = {"x": images(4), "state": random.normal(size=(4, 3, SIZE)).astype(np.float32)}
    assert model.profile(data).samples == 4
    rows = {"x": data["x"].reshape(12, SIZE, SIZE), "state": data["state"].reshape(12, SIZE)}
    assert model.profile(rows).samples == 12
    with pytest.raises(DataError, match=r"if its first axis is not one of samples"):
        model.profile({"x": data["x"], "state": rows["state"][:4]})


def test_all_shapes_to_state_are_told_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["nodes", "w"], ["p"]),
        helper.make_node("Gather", ["p", "ends"], ["y"]),
    ]
    weight = np.random.default_rng(8).normal(size=(SIZE, CLASSES)).astype(np.float32)
    made = tiny_model(nodes, {"nodes": ("n", SIZE), "ends": ("m",)}, ["y"], {"w": weight})
    made.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    path = save(made, tmp_path)
    random = np.random.default_rng(9)
    data = {
        "nodes": random.normal(size=(4, 6, SIZE)).astype(np.float32),
        "ends": random.integers(0, 6, (4, 9)),
    }
    told = "axes of the inputs are not of samples, state them: `shapes=nodes=6,8` `shapes=ends=9`"
    with pytest.raises(DataError, match=told):
        qglow.load_model(path).profile(data)
    stated = qglow.load_model(path, shapes={"nodes": (6, 8), "ends": (9,)})
    assert stated.profile(data).samples == 4


def _pair(folder: Path) -> Path:
    nodes = [
        helper.make_node("Unsqueeze", ["state", "axis"], ["column"]),
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "column"], ["y"]),
    ]
    weight = np.random.default_rng(6).normal(size=(SIZE, SIZE)).astype(np.float32)
    shapes = {"x": (3, SIZE, SIZE), "state": (3, SIZE)}
    return save(tiny_model(nodes, shapes, ["y"], {"axis": ints(1), "w": weight}), folder)


def test_labels_tell_rows_of_a_batch_from_one_input(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    weight = np.random.default_rng(7).normal(size=(SIZE, CLASSES)).astype(np.float32)
    model = qglow.load_model(save(tiny_model(nodes, {"x": (3, SIZE)}, ["y"], {"w": weight}), tmp_path))
    x = np.random.default_rng(8).normal(size=(4, 3, SIZE)).astype(np.float32)
    quantized = model.quantize(model.profile(list(x)))
    batches = [{"x": rows, "label": np.zeros(3, np.int64)} for rows in x]
    assert qglow.compare(quantized, batches).samples == 12
    assert qglow.compare(quantized, x.reshape(12, SIZE)).samples == 12
    assert qglow.compare(quantized, x).samples == 4


def test_calibration_runs_are_the_samples(tmp_path: Path) -> None:
    model = qglow.load_model(classifier(tmp_path, (CLASSES,)))
    runs = CalibrationRuns.of(model.graph, qglow.Recipe(), {"x": images(4)})
    assert (runs.batch, len(runs)) == (1, 4)
    assert [run["x"].shape for run in runs] == [(3, SIZE, SIZE)] * 4


def test_an_array_of_another_shape_names_both_forms(tmp_path: Path) -> None:
    model = qglow.load_model(classifier(tmp_path, (CLASSES,)))
    with pytest.raises(QglowError, match=r"takes \[8, 8\], or \[3, 8, 8\] if its first axis"):
        model.profile({"x": np.zeros((4, 1, SIZE, SIZE), np.float32)})
