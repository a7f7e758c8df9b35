"""Models whose first dimension counts steps or tokens: a run of them is one sample, not as many as it has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

import qglow
from qglow.core.batch import may_be_batch
from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array, Dimension
from qglow.importer.binding import tensor_shape
from qglow.importer.steps import name_steps
from qglow.report.evaluation import run_over_data
from tests.unit.importer.tiny import save, session, tiny_model
from tests.zoo import wild_path

node = helper.make_node
WIDTH, HIDDEN, STEPS, RUNS = 6, 8, 5, 10


def classifier(folder: Path, shape: tuple[int | str, ...], front: Sequence[NodeProto] = ()) -> Path:
    """Scores of sequences [steps, batch, 6] by the last states of an LSTM, as PyTorch has it by default.

    `front` makes the LSTM's input `front` of `x`.
    """
    random = np.random.default_rng(3)
    constants = {
        "w": (random.normal(size=(1, 4 * HIDDEN, WIDTH)) * 0.4).astype(np.float32),
        "r": (random.normal(size=(1, 4 * HIDDEN, HIDDEN)) * 0.4).astype(np.float32),
        "v": random.normal(size=(HIDDEN, 3)).astype(np.float32),
        "first": np.array([0]),
        "mixed": np.eye(WIDTH, dtype=np.float32),
        "table": random.normal(size=(10, WIDTH)).astype(np.float32),
        "cast": np.ones((1, 1, WIDTH), np.float32),
    }
    nodes = [
        *(front or [node("Identity", ["x"], ["front"])]),
        node("LSTM", ["front", "w", "r"], ["", "last", ""], hidden_size=HIDDEN),
        node("Squeeze", ["last", "first"], ["rows"]),
        node("MatMul", ["rows", "v"], ["y"]),
    ]
    used = {name for one in nodes for name in one.input}
    kept = {name: value for name, value in constants.items() if name in used}
    return save(tiny_model(nodes, {"x": (*shape, WIDTH)}, ["y"], kept, opset=17), folder)


def runs(lengths: list[int]) -> list[Array]:
    random = np.random.default_rng(4)
    return [random.normal(size=(length, 1, WIDTH)).astype(np.float32) for length in lengths]


def files(folder: Path, arrays: list[Array]) -> Path:
    folder.mkdir()
    for number, array in enumerate(arrays):
        np.savez(folder / f"{number:02}.npz", x=array)
    return folder


@pytest.mark.parametrize("shape", [("steps", "batch"), (STEPS, "batch"), ("steps", 1)])
def test_a_run_of_steps_is_one_sample(tmp_path: Path, shape: tuple[int | str, int | str]) -> None:
    model, arrays = qglow.load_model(classifier(tmp_path, shape)), runs([STEPS] * RUNS)
    of_files = model.profile(files(tmp_path / "runs", arrays))
    stacked = model.profile({"x": np.stack(arrays)})
    assert of_files.samples == stacked.samples == RUNS
    assert of_files.data.hex == stacked.data.hex
    assert of_files.shapes == {"x": (STEPS, 1, WIDTH)}
    assert all(sample.inputs["x"].shape == (STEPS, 1, WIDTH) for sample in of_files.kept)
    quantized = model.quantize(of_files)
    assert quantized.verdict is not None and quantized.verdict.samples == RUNS
    assert qglow.compare(quantized, {"x": np.stack(arrays)}).samples == RUNS
    wanted = [session(tmp_path / "tiny.onnx").run(None, {"x": x})[0] for x in arrays]
    found = [quantized.compile()({"x": x})["y"] for x in arrays]
    assert np.abs(np.concatenate(found) - np.concatenate(wanted)).max() < 0.05


SWAPPED = node("Transpose", ["x"], ["front"], perm=[1, 0, 2])
FRONTS = {
    "layers": [
        node("MatMul", ["x", "mixed"], ["m"]),
        node("Sigmoid", ["m"], ["s"]),
        node("Mul", ["m", "s"], ["g"]),
        node("Add", ["g", "cast"], ["front"]),
    ],
    "twice": [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("Transpose", ["t"], ["front"], perm=[1, 0, 2]),
    ],
    "axes": [node("Unsqueeze", ["x", "first"], ["u"]), node("Squeeze", ["u", "first"], ["front"])],
}


@pytest.mark.parametrize("front", FRONTS.values(), ids=FRONTS)
@pytest.mark.parametrize("shape", [("s0", "s1"), ("", ""), ("x_dim_0", "x_dim_1")])
def test_layers_tell_steps_where_names_do_not(
    tmp_path: Path, shape: tuple[str, str], front: list[NodeProto]
) -> None:
    model, arrays = qglow.load_model(classifier(tmp_path, shape, front)), runs([STEPS] * RUNS)
    profile = model.profile(files(tmp_path / "runs", arrays))
    assert profile.samples == RUNS
    assert profile.shapes == {"x": (STEPS, 1, WIDTH)}


@pytest.mark.parametrize(("shape", "front"), [(("s0", "s1"), [SWAPPED]), (("batch", "s1"), ())])
def test_a_batch_stays_one(tmp_path: Path, shape: tuple[str, str], front: list[NodeProto]) -> None:
    """Where layers take the first axis as a batch, or a name says that it is one."""
    model = qglow.load_model(classifier(tmp_path, shape, front))
    stacked = np.concatenate(runs([RUNS]), axis=1)
    assert model.profile({"x": stacked.reshape(RUNS, 1, WIDTH)}).samples == RUNS


def test_tokens_and_scans_are_followed(tmp_path: Path) -> None:
    ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["s0", "s1"])
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("LSTM", ["e", "w", "r"], ["y"], hidden_size=HIDDEN),
    ]
    assert _declared(nodes, [ids]) == {"ids": ["ids_steps", "s1"]}
    mask = onnx.helper.make_tensor_value_info("mask", onnx.TensorProto.FLOAT, ["s0", "s1"])
    assert _declared(nodes, [mask, ids]) == {"mask": ["mask_steps", "s1"], "ids": ["mask_steps", "s1"]}
    free = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, None, WIDTH])
    body = helper.make_graph(
        [node("Identity", ["one"], ["y"])],
        "body",
        [helper.make_tensor_value_info("one", onnx.TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    for axes, name in (([0], "x_steps"), ([1], None), ([-3], "x_steps"), ([7], None)):
        scan = node("Scan", ["x"], ["y"], num_scan_inputs=1, scan_input_axes=axes, body=body)
        assert _declared([scan], [free]) == {"x": [name, None, WIDTH]}


def test_rows_that_another_input_picks_are_nodes_of_a_graph(tmp_path: Path) -> None:
    """Messages along edges, as PyTorch Geometric writes them: nodes seemed to be as many samples."""
    random = np.random.default_rng(6)
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Gather", ["edges", "from"], ["sources"], axis=0),
        node("Gather", ["h", "sources"], ["rows"], axis=0),
        node("Gather", ["edges", "to"], ["targets"], axis=0),
        node("Mul", ["h", "nothing"], ["zeros"]),
        node("Unsqueeze", ["targets", "last"], ["column"]),
        node("Shape", ["rows"], ["shape"]),
        node("Expand", ["column", "shape"], ["places"]),
        node("ScatterElements", ["zeros", "places", "rows"], ["sums"], axis=0, reduction="add"),
        node("MatMul", ["sums", "w"], ["y"]),
    ]
    w = (random.normal(size=(WIDTH, WIDTH)) / 2).astype(np.float32)
    constants = {"w": w, "from": np.array(0), "to": np.array(1), "last": np.array([1])}
    constants["nothing"] = np.zeros(1, np.float32)
    model = tiny_model(nodes, {"x": ("s0", WIDTH), "edges": (2, "s1")}, ["y"], constants, opset=18)
    model.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    path = save(model, tmp_path)
    samples = [
        {"x": random.normal(size=(n, WIDTH)).astype(np.float32), "edges": random.integers(0, n, (2, e))}
        for n, e in [(5, 9), (7, 12)] * 3
    ]
    loaded = qglow.load_model(path)
    assert loaded.dimensions == {"x": ("x_steps", WIDTH), "edges": (2, "s1")}
    quantized = loaded.quantize(loaded.profile(samples))
    program, reference = quantized.compile(), session(path)
    for sample in samples[:2]:
        wanted = reference.run(None, sample)[0]
        assert np.abs(program(sample)["y"] - wanted).max() < 0.05 * np.abs(wanted).max()


def test_what_picks_rows_has_samples_or_not() -> None:
    """A table beside rows of ids, which are samples as before; nodes beside edges: nothing has samples."""
    table = onnx.helper.make_tensor_value_info("given", onnx.TensorProto.FLOAT, ["s0", WIDTH])
    ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["s1", "s2"])
    picks = [node("Gather", ["given", "ids"], ["e"])]
    assert _declared(picks, [table, ids]) == {"given": ["given_steps", WIDTH], "ids": ["s1", "s2"]}
    edges = onnx.helper.make_tensor_value_info("edges", onnx.TensorProto.INT64, [2, "s1"])
    graphs = onnx.helper.make_tensor_value_info("batch", onnx.TensorProto.INT64, ["s2"])
    along = [node("Gather", ["given", "edges"], ["e"])]
    found = _declared(along, [table, edges, graphs])
    assert found == {"given": ["given_steps", WIDTH], "edges": [2, "s1"], "batch": ["b_steps"]}
    sized = [node("Shape", ["ids"], ["places"]), node("Gather", ["given", "places"], ["e"])]
    assert _declared(sized, [table, ids]) == {"given": ["s0", WIDTH], "ids": ["s1", "s2"]}


def _declared(nodes: list[NodeProto], inputs: list[onnx.ValueInfoProto]) -> dict[str, list[Dimension] | None]:
    table = onnx.numpy_helper.from_array(np.zeros((10, WIDTH), np.float32), "table")
    proto = helper.make_model(helper.make_graph(nodes, "g", inputs, [], [table]))
    name_steps(proto, nodes)
    return {value.name: tensor_shape(value) for value in proto.graph.input}


FRAMES = {
    "windows": [
        node("Unsqueeze", ["x", "lead"], ["image"]),
        node("Conv", ["image", "kernel"], ["y"], strides=[1, 1]),
    ],
    "pools": [node("Unsqueeze", ["x", "lead"], ["i"]), node("MaxPool", ["i"], ["y"], kernel_shape=[2, 1])],
    "padded": [node("Pad", ["x", "around"], ["y"])],
    "mean": [node("ReduceMean", ["x"], ["y"], axes=[0], keepdims=0)],
    "among each other": [
        node("Transpose", ["x"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "x"], ["y"]),
    ],
}
SAMPLES = {
    "rows": [node("MatMul", ["x", "kernel"], ["y"])],
    "channels": [
        node("Unsqueeze", ["x", "second"], ["c"]),
        node("Conv", ["c", "filter"], ["y"], strides=[1]),
    ],
    "padded inside": [node("Pad", ["x", "inside"], ["y"])],
    "sums of rows": [node("ReduceSum", ["x", "second"], ["y"])],
}
CONSTANTS = {
    "lead": np.array([0, 1]),
    "second": np.array([1]),
    "kernel": np.ones((4, 1, 3, 3), np.float32),
    "filter": np.ones((4, 1, 3), np.float32),
    "around": np.array([2, 0, 2, 0]),
    "inside": np.array([0, 2, 0, 2]),
}


@pytest.mark.parametrize("first", [None, "s0", "x_dim_0"])
@pytest.mark.parametrize(("nodes", "name"), [(FRAMES, "x_steps"), (SAMPLES, None)])
def test_what_is_computed_along_the_first_axis_tells_frames(
    nodes: dict[str, list[NodeProto]], name: str | None, first: str | None
) -> None:
    for what, some in nodes.items():
        held = [onnx.numpy_helper.from_array(data, key) for key, data in CONSTANTS.items()]
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [first, WIDTH])
        proto = helper.make_model(
            helper.make_graph(some, "g", [x], [], held), opset_imports=[helper.make_opsetid("", 13)]
        )
        name_steps(proto, some)
        assert tensor_shape(proto.graph.input[0]) == [name or first, WIDTH], what


def test_images_and_dimensions_of_one_name_tell_nothing() -> None:
    pool = [node("GlobalAveragePool", ["x"], ["p"]), node("ReduceMean", ["p"], ["y"], axes=[0])]
    image = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 3, 8, 8])
    assert _declared(pool, [image]) == {"x": [None, 3, 8, 8]}
    square = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["s", "s"])
    assert _declared([node("MatMul", ["x", "x"], ["y"])], [square]) == {"x": ["s", "s"]}


def test_a_network_of_frames_is_calibrated_on_all_of_them(tmp_path: Path) -> None:
    """Frames without a batch seemed to be as many samples: int8 of one frame was used for a hundred."""
    random = np.random.default_rng(9)
    stored = {
        "w": random.normal(size=(8, 1, 5, 5)).astype(np.float32),
        "v": random.normal(size=(8, 3)).astype(np.float32),
        "lead": np.array([0, 1]),
        "around": np.array([2, 2, 2, 2]),
    }
    nodes = [
        node("Pad", ["x", "around"], ["padded"]),
        node("Unsqueeze", ["padded", "lead"], ["image"]),
        node("Conv", ["image", "w"], ["c"], kernel_shape=[5, 5]),
        node("Relu", ["c"], ["r"]),
        node("ReduceMean", ["r"], ["m"], axes=[0, 2, 3], keepdims=0),
        node("Unsqueeze", ["m", "row"], ["u"]),
        node("MatMul", ["u", "v"], ["y"]),
    ]
    stored["row"] = np.array([0])
    path = save(tiny_model(nodes, {"x": ("x_dim_0", WIDTH)}, ["y"], stored, opset=13), tmp_path)
    samples = [{"x": random.normal(size=(n, WIDTH)).astype(np.float32)} for n in (20, 20, 20, 30, 20, 9)]
    model = qglow.load_model(path)
    profile = model.profile(samples)
    assert (profile.samples, profile.shapes) == (6, {"x": (20, WIDTH)})
    program, reference = model.quantize(profile).compile(), session(path)
    for sample in samples:
        wanted = reference.run(None, sample)[0]
        assert np.abs(program(sample)["y"] - wanted).max() < 0.05 * np.abs(wanted).max()


def test_states_of_later_steps_are_seen(tmp_path: Path) -> None:
    """Single steps, which these runs were profiled as, have states of two thirds of that range."""
    model = qglow.load_model(classifier(tmp_path, ("steps", "batch")))
    ranges = {}
    for steps in (1, 12):
        profile = model.profile(files(tmp_path / f"{steps}", runs([steps] * 24)))
        (ranges[steps],) = (
            v.statistics.high for v in profile.values.values() if v.name == "last__forth_states"
        )
    assert ranges[12] > 1.5 * ranges[1]


def test_runs_may_differ_in_their_steps(tmp_path: Path) -> None:
    model, arrays = qglow.load_model(classifier(tmp_path, ("steps", "batch"))), runs([3, 5, 9, 5, 12, 5])
    data = files(tmp_path / "runs", arrays)
    profile = model.profile(data)
    assert profile.samples == len(arrays) and profile.shapes == {"x": (5, 1, WIDTH)}
    given = session(tmp_path / "tiny.onnx")
    for (_, found), x in zip(run_over_data(model.compile(), data), arrays, strict=True):
        wanted = given.run(None, {"x": x})[0]
        np.testing.assert_allclose(found["y"].reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)


def test_steps_are_not_bound_to_one_in_silence(tmp_path: Path) -> None:
    model = qglow.load_model(classifier(tmp_path, ("steps", 1)))
    with pytest.raises(
        UsageError, match=r"'x' has shape \[steps, 1, 6\]; bind its dimensions, as in `shapes=x=128,1,6`"
    ):
        _ = model.graph
    x = runs([7])[0]
    wanted = session(tmp_path / "tiny.onnx").run(None, {"x": x})[0]
    np.testing.assert_allclose(model.compile()({"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(DataError, match=r"the model takes \[\?, 1, 6\]"):
        model.profile({"x": np.zeros((4, 7, 2, WIDTH), np.float32)})


def test_a_batch_of_steps_is_refused(tmp_path: Path) -> None:
    model = qglow.load_model(classifier(tmp_path, ("steps", "batch"))).at({"x": (STEPS, 1, WIDTH)})
    with pytest.raises(UsageError, match="'steps', the first dimension of 'x', counts no samples"):
        model.with_batch(2)


@pytest.mark.parametrize(
    ("dimensions", "wanted"),
    [
        (["batch", "sequence", 8], True),
        (["N", "T", 8], True),
        ([None, 3, "height", "width"], True),
        (["unk__12", 224, 224, 3], True),
        ([1, "batch"], False),
        ([1, 3, 8, 8], True),
        ([4, 3, 8, 8], False),
        (["timestep_batch", 4], True),
        ([None, "batch", 4], False),
        (["n", "batch_size", 4], False),
        (["T", "N", 4], False),
        (["S", "B", 4], False),
        (["B", "N", 3], True),
        (["M", 40], True),
        (["samples"], False),
        (["num_samples", 40], True),
        (["batch"], True),
        ([None], True),
        (["T", 40], False),
        (["unk__3", "N", 3], True),
        (["length", 45], False),
        (["sequence"], False),
        (["height", "width", 3], False),
        (["frames_dynamic_axes_1", 40], True),
        (["input_dim_0", 40], True),
        ([], False),
    ],
)
def test_names_of_dimensions_tell_what_they_count(dimensions: list[Dimension], wanted: bool) -> None:
    assert may_be_batch(dimensions) is wanted


def test_a_model_of_speech_without_a_batch(tmp_path: Path) -> None:
    """Phonemes [length] and their pitch [length, 1]; binding the length to 1 gave a graph of other ranks."""
    path = wild_path("voicevox_predict_contour.onnx")
    arrays: dict[str, dict[str, Array]] = {}
    with np.load(path.with_suffix(".inputs.npz")) as stored:
        for key in stored.files:
            number, name = key.split("|")[:2]
            arrays.setdefault(number, {})[name] = stored[key]
    folder = tmp_path / "runs"
    folder.mkdir()
    for number, inputs in arrays.items():
        np.savez(folder / f"{number}.npz", **inputs)
    model = qglow.load_model(path)
    quantized = model.quantize(model.profile(folder))
    compared = qglow.compare(quantized, folder)
    assert compared.samples == len(arrays)
    assert compared.pairings[0].overall.sqnr_db > 35
