"""Windows with strides, and means, along a size that is only known at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, helper

import qglow
from qglow.core.errors import DataError, UnsupportedError
from qglow.core.types import Array, Dimension
from tests.end_to_end.bits import same
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.tiny import save, tiny_model

node = helper.make_node
RANDOM = np.random.default_rng(0)
FORMS = ("float", "int8")
NEAREST = {"mode": "nearest", "nearest_mode": "floor"}


def weights(**shapes: tuple[int, ...]) -> dict[str, Array]:
    return {name: RANDOM.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def made(
    folder: Path,
    form: str,
    nodes: Sequence[NodeProto],
    x: Sequence[Dimension],
    constants: Mapping[str, Array],
    sample: Sequence[int],
    outputs: Sequence[str] = ("y",),
) -> qglow.Model | qglow.QuantizedModel:
    """A model of one input, quantized for samples of a shape if the form is int8."""
    model = tiny_model(list(nodes), {"x": tuple(x)}, list(outputs), dict(constants), opset=17)
    loaded = qglow.load_model(save(model, folder))
    if form == "float":
        return loaded
    data = [{"x": RANDOM.normal(size=sample).astype(np.float32)} for _ in range(8)]
    return loaded.quantize(loaded.profile(data), repair=False, check=False)


def check(
    model: qglow.Model | qglow.QuantizedModel,
    bounds: Mapping[str, int | str],
    shapes: Sequence[Sequence[int]],
    isa: str = "generic",
) -> None:
    """Every shape has the bits of a program of its own."""
    bounded, own = model.compile(bounds=bounds, isa=isa), model.compile(isa=isa)
    for shape in shapes:
        inputs = {"x": RANDOM.normal(size=shape).astype(np.float32)}
        assert same(bounded(inputs), own(inputs)), shape


SPEECH = [
    node("Conv", ["x", "w0"], ["c0"], strides=[5]),
    node("InstanceNormalization", ["c0", "scale", "b0"], ["n0"]),
    node("Relu", ["n0"], ["r0"]),
    node("Conv", ["r0", "w1", "b0"], ["c1"], strides=[2], pads=[1, 1]),
    node("Relu", ["c1"], ["r1"]),
    node("Conv", ["r1", "w2", "b0"], ["c2"], strides=[2]),
    node("Conv", ["c2", "w3"], ["positions"], group=4, pads=[2, 2]),
    node("Slice", ["positions", "zero", "minus_one", "two"], ["same"]),
    node("Add", ["c2", "same"], ["sum"]),
    node("Transpose", ["sum"], ["tokens"], perm=[0, 2, 1]),
    node("MatMul", ["tokens", "w4"], ["scores"]),
    node("Transpose", ["scores"], ["turned"], perm=[0, 2, 1]),
    node("MatMul", ["scores", "turned"], ["shares"]),
    node("Softmax", ["shares"], ["each"], axis=-1),
    node("MatMul", ["each", "scores"], ["mixed"]),
    node("ReduceMean", ["mixed"], ["mean"], axes=[1], keepdims=0),
]


@pytest.mark.parametrize("isa", NATIVE_ISAS)
@pytest.mark.parametrize("form", FORMS)
def test_tokens_of_a_signal(form: str, isa: str, tmp_path: Path) -> None:
    """Strided convolutions over samples, a normalization over time, attention, a mean (wav2vec 2.0)."""
    shapes = {"w0": (8, 1, 10), "scale": (8,), "b0": (8,), "w1": (8, 8, 3), "w2": (8, 8, 2)}
    constants = weights(**shapes, w3=(8, 2, 4), w4=(8, 8))
    constants |= {"zero": np.array([0]), "minus_one": np.array([-1]), "two": np.array([2])}
    model = made(tmp_path, form, SPEECH, (1, 1, "T"), constants, (1, 1, 157), ("mean", "mixed"))
    check(model, {"T": 200}, [(1, 1, 200), (1, 1, 157), (1, 1, 71), (1, 1, 40)], isa)


@pytest.mark.parametrize("form", FORMS)
def test_pools_along_a_signal(form: str, tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["positive"]),
        node("MaxPool", ["positive"], ["most"], kernel_shape=[3], strides=[2], pads=[1, 1]),
        node("AveragePool", ["most"], ["some"], kernel_shape=[2], strides=[2]),
        node("Conv", ["some", "w"], ["c"], strides=[3], pads=[2, 0], dilations=[2]),
        node("AveragePool", ["c"], ["y"], kernel_shape=[3], pads=[1, 1], count_include_pad=1),
        node("GlobalAveragePool", ["c"], ["mean"]),
        node("GlobalMaxPool", ["c"], ["largest"]),
    ]
    outputs = ("y", "mean", "largest")
    model = made(tmp_path, form, nodes, ("N", 4, "T"), weights(w=(6, 4, 3)), (2, 4, 90), outputs)
    check(model, {"N": 8, "T": 120}, [(8, 4, 120), (1, 4, 119), (2, 4, 90), (1, 4, 47)])


@pytest.mark.parametrize("form", FORMS)
def test_frames_and_frequencies(form: str, tmp_path: Path) -> None:
    """Two strided convolutions over a spectrogram, then tokens of its channels (Conformer)."""
    nodes = [
        node("Unsqueeze", ["x", "one"], ["image"]),
        node("Conv", ["image", "w0"], ["c0"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], strides=[2, 2]),
        node("Transpose", ["c1"], ["turned"], perm=[0, 2, 1, 3]),
        node("Reshape", ["turned", "shape"], ["rows"]),
        node("MatMul", ["rows", "w2"], ["y"]),
    ]
    constants = weights(w0=(8, 1, 3, 3), w1=(8, 8, 3, 3), w2=(24, 5))
    constants |= {"one": np.array([1]), "shape": np.array([0, -1, 24])}
    model = made(tmp_path, form, nodes, (1, "T", 16), constants, (1, 50, 16))
    check(model, {"T": 64}, [(1, 64, 16), (1, 49, 16), (1, 8, 16)])


@pytest.mark.parametrize("isa", NATIVE_ISAS)
@pytest.mark.parametrize("form", FORMS)
def test_images_of_any_height_and_width(form: str, isa: str, tmp_path: Path) -> None:
    """A classifier whose mean is of int8, and a map of scores."""
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["r0"]),
        node("MaxPool", ["r0"], ["p0"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["p0", "w1"], ["c1"], group=8, pads=[1, 1, 1, 1]),
        node("Add", ["c1", "p0"], ["a1"]),
        node("Relu", ["a1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["y"]),
    ]
    outputs = ["y"]
    if form == "int8":
        nodes += [node("GlobalAveragePool", ["r1"], ["g"]), node("Flatten", ["g"], ["f"])]
        nodes += [node("Gemm", ["f", "w3"], ["scores"])]
        outputs.append("scores")
    constants = weights(w0=(8, 3, 3, 3), w1=(8, 1, 3, 3), w2=(4, 8, 1, 1), w3=(8, 5))
    model = made(tmp_path, form, nodes, ("N", 3, "H", "W"), constants, (2, 3, 40, 40), outputs)
    shapes = [(2, 3, 48, 40), (1, 3, 33, 40), (2, 3, 17, 23), (1, 3, 5, 9)]
    check(model, {"N": 8, "H": 48, "W": 40}, shapes, isa)


@pytest.mark.parametrize("form", FORMS)
def test_images_of_multiples_of_a_number(form: str, tmp_path: Path) -> None:
    """Halves that are doubled again fit what they are joined with (U-Net, and necks of detectors)."""
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], pads=[1] * 4),
        node("Conv", ["c0", "w1"], ["c1"], strides=[2, 2], pads=[1] * 4),
        node("Relu", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["p1", "", "twice"], ["u1"], coordinate_transformation_mode="asymmetric", **NEAREST),
        node("Concat", ["u1", "r1"], ["j1"], axis=1),
        node("Resize", ["j1", "", "twice"], ["u0"], mode="nearest"),
        node("Concat", ["u0", "c0"], ["j0"], axis=1),
        node("Conv", ["j0", "w2"], ["y"], pads=[1] * 4),
    ]
    constants = weights(w0=(4, 3, 3, 3), w1=(8, 4, 3, 3), w2=(2, 20, 3, 3))
    constants["twice"] = np.array([1, 1, 2, 2], np.float32)
    model = made(tmp_path, form, nodes, ("N", 3, "H", "W"), constants, (1, 3, 24, 24))
    bounds = {"N": 1, "h": 10, "w": 9, "H": "4 * h", "W": "4 * w"}
    check(model, bounds, [(1, 3, 40, 36), (1, 3, 12, 28), (1, 3, 4, 4)])
    program = model.compile(bounds=bounds)
    with pytest.raises(DataError, match=r"input 'x' has shape \(1, 3, 42, 36\), .* \[N, 3, 4 \* h, 4 \* w\]"):
        program({"x": np.zeros((1, 3, 42, 36), np.float32)})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
def test_windows_behind_the_live_ones_see_some(pool: str, form: str, tmp_path: Path) -> None:
    """Zeros behind an input are not all zeros behind a pool, and a convolution reads what is there."""
    counted = {"count_include_pad": 1} if pool == "AveragePool" else {}
    nodes = [
        node(pool, ["x"], ["p"], kernel_shape=[3, 3], pads=[1] * 4, **counted),
        node("Conv", ["p", "w"], ["y"], pads=[1] * 4),
    ]
    model = made(tmp_path, form, nodes, (1, 4, "H", "W"), weights(w=(3, 4, 3, 3)), (1, 4, 16, 16))
    check(model, {"H": 16, "W": 16}, [(1, 4, 16, 16), (1, 4, 9, 13), (1, 4, 2, 3)])


def test_a_mean_of_floats_over_images_is_named(tmp_path: Path) -> None:
    """Its order of additions follows from the width."""
    nodes = [node("GlobalAveragePool", ["x"], ["y"], name="pool")]
    model = made(tmp_path, "float", nodes, (1, 3, "H", "W"), {}, ())
    with pytest.raises(UnsupportedError, match="node 'pool__sum' .*all W places along axis 3 of 'x'"):
        model.compile(bounds={"H": 16, "W": 16})


def test_a_sum_of_floats_over_two_axes_is_named(tmp_path: Path) -> None:
    nodes = [node("ReduceSum", ["x", "axes"], ["y"], name="total")]
    model = made(tmp_path, "float", nodes, (1, "A", "B"), {"axes": np.array([1, 2])}, ())
    check(model, {"A": 1, "B": 16}, [(1, 1, 13), (1, 1, 16)])
    with pytest.raises(UnsupportedError, match="node 'total' .*all B places along axis 2 of 'x'"):
        model.compile(bounds={"A": 8, "B": 16})


def test_signals_that_are_too_short_are_refused(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], strides=[5]),
        node("Conv", ["c0", "w1"], ["c1"], strides=[2]),
        node("ReduceMean", ["c1"], ["y"], axes=[2], keepdims=0),
    ]
    model = made(tmp_path, "float", nodes, (1, 1, "T"), weights(w0=(4, 1, 10), w1=(4, 4, 3)), ())
    bounded = model.compile(bounds={"T": 100})
    assert bounded({"x": np.ones((1, 1, 20), np.float32)})["y"].shape == (1, 4)
    for count in (0, 3, 10, 19):
        with pytest.raises(
            DataError, match=rf"x \[1, 1, {count}\] is too small: .* \(T // (5|10)\) - 1 places"
        ):
            bounded({"x": np.ones((1, 1, count), np.float32)})


def test_a_file_keeps_parts_of_sizes(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w0"], ["c0"], strides=[5]), node("Conv", ["c0", "w1"], ["y"], strides=[2])]
    model = made(tmp_path, "float", nodes, (1, 1, "T"), weights(w0=(4, 1, 10), w1=(4, 4, 3)), ())
    assert isinstance(model, qglow.Model)
    path = tmp_path / "signal.qglow"
    model.save_program(path, shapes={"x": (1, 1, "20..100")})
    loaded, own = qglow.load(path), model.compile()
    for count in (20, 63, 100):
        inputs = {"x": RANDOM.normal(size=(1, 1, count)).astype(np.float32)}
        assert same(loaded(inputs), own(inputs))
