"""Values that numbers or places determine: folded arithmetic, ranges, places, running sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper

from qglow.core.errors import QglowError
from qglow.graph.interpreter import Interpreter
from qglow.importer import import_model
from qglow.toolchain import compile_graph
from tests.unit.importer import (
    composed_cases,
)
from tests.unit.importer.cases import IMAGE, floats, ints
from tests.unit.importer.tiny import assert_as_onnxruntime, save, session, tiny_model


def test_arithmetic_on_shapes_is_folded(tmp_path: Path) -> None:
    """The batch of the input, read with Shape and Gather, rebuilt with Unsqueeze and Concat."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Constant", [], ["zero"], value_int=0),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Constant", [], ["axes"], value_ints=[0]),
        helper.make_node("Unsqueeze", ["batch", "axes"], ["batch1"]),
        helper.make_node("Constant", [], ["rest"], value_ints=[-1]),
        helper.make_node("Concat", ["batch1", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    path = save(tiny_model(nodes, {"x": ["N", 2, 3]}, ["y"]), tmp_path)
    model = import_model(path, default_batch=5)
    assert [n.operator.name for n in model.graph.nodes] == ["Reshape"]
    assert model.graph.outputs[0].type.shape == (5, 6)
    assert_as_onnxruntime(model.graph, path)


def test_integer_arithmetic_and_casts_are_folded(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=1),
        helper.make_node("Mul", ["shape", "two"], ["double"]),
        helper.make_node("Cast", ["double"], ["real"], to=1),
        helper.make_node("Mul", ["x", "real"], ["y"]),
    ]
    model = tiny_model(nodes, {"x": [4, 3]}, ["y"], {"two": np.array([2], np.int64)}, opset=15)
    path = save(model, tmp_path)
    graph = import_model(path).graph
    assert [n.operator.name for n in graph.nodes] == ["Mul"]
    assert_as_onnxruntime(graph, path)


@pytest.mark.parametrize("detected", [(1, 1), (0, 1), (1, 0), (0, 0)])
def test_numbers_that_are_none_are_told(detected: tuple[int, int], tmp_path: Path) -> None:
    negative, positive = detected
    nodes = [
        helper.make_node("Div", ["x", "zero"], ["d"]),
        helper.make_node("Sub", ["d", "d"], ["n"]),
        helper.make_node("IsNaN", ["n"], ["nan"]),
        helper.make_node("IsInf", ["d"], ["inf"], detect_negative=negative, detect_positive=positive),
        helper.make_node("Xor", ["nan", "inf"], ["found"]),
        helper.make_node("Where", ["found", "x", "zero"], ["y"]),
    ]
    model = tiny_model(nodes, {"x": IMAGE}, ["y"], {"zero": np.zeros((), np.float32)}, opset=13)
    path = save(model, tmp_path)
    assert_as_onnxruntime(import_model(path).graph, path)


GENERATED = {
    "range": ("Range", ["start", "limit", "step"], {}, (4,)),
    "eye": ("EyeLike", ["matrix"], {"k": 1, "dtype": 7}, (3, 5)),
    "non-zero": ("NonZero", ["matrix"], {}, (2, 14)),
    "size": ("Size", ["matrix"], {}, ()),
    "hann": ("HannWindow", ["depth"], {}, (4,)),
    "hamming": ("HammingWindow", ["depth"], {"periodic": 0}, (4,)),
    "blackman": ("BlackmanWindow", ["depth"], {}, (4,)),
    "mel": ("MelWeightMatrix", ["bands", "length", "rate", "low", "high"], {}, (9, 8)),
    "one-hot": ("OneHot", ["places", "depth", "values"], {}, (2, 3, 4)),
    "one-hot-front": ("OneHot", ["places", "depth", "values"], {"axis": 0}, (4, 2, 3)),
}
NUMBERS = {
    "start": np.array(7, np.int64),
    "limit": np.array(-4, np.int64),
    "step": np.array(-3, np.int64),
    "matrix": np.arange(15, dtype=np.float32).reshape(3, 5),
    "bands": np.array(8, np.int64),
    "length": np.array(16, np.int64),
    "rate": np.array(8192, np.int64),
    "low": np.array(0, np.float32),
    "high": np.array(4096, np.float32),
    "places": np.array([[0, 3, -1], [4, -5, -4]], np.int64),
    "depth": np.array(4, np.int64),
    "values": np.array([2, 5], np.int64),
}


@pytest.mark.parametrize("name", GENERATED)
def test_values_that_numbers_determine_are_constants(name: str, tmp_path: Path) -> None:
    operator, inputs, attributes, shape = GENERATED[name]
    nodes = [
        helper.make_node(operator, inputs, ["made"], **attributes),
        helper.make_node("Cast", ["made"], ["real"], to=1),
        helper.make_node("Add", ["x", "real"], ["y"]),
    ]
    model = tiny_model(nodes, {"x": shape}, ["y"], {key: NUMBERS[key] for key in inputs}, opset=17)
    path = save(model, tmp_path)
    graph = import_model(path).graph
    assert [n.operator.name for n in graph.nodes] == ["Add"]
    assert_as_onnxruntime(graph, path)


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("in_order", [0, 1])
def test_unique_elements_of_a_constant(axis: int | None, in_order: int, tmp_path: Path) -> None:
    table = np.array([[2, 1, 2], [0, 3, 0], [2, 1, 2], [5, 1, 5]], np.float32)
    attributes = {} if axis is None else {"axis": axis}
    made, names = ["a", "b", "c", "d"], ["found", "firsts", "inverse", "counts"]
    nodes = [
        helper.make_node("Unique", ["t"], made, sorted=in_order, **attributes),
        *(helper.make_node("Cast", [a], [b], to=1) for a, b in zip(made, names, strict=True)),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    path = save(tiny_model(nodes, {"x": [2]}, ["y", *names], {"t": table}), tmp_path)
    feeds = {"x": np.ones(2, np.float32)}
    found = Interpreter(import_model(path, native=True).graph).run(feeds)
    for name, expected in zip(names, session(path).run(names, feeds), strict=True):
        np.testing.assert_array_equal(found[name], expected, name)


UNPOOLED = {"kernel_shape": [2, 2], "strides": [2, 2]}


def test_maxima_go_back_to_known_places(tmp_path: Path) -> None:
    places = np.array([5, 7, 13, 15], np.int64).reshape(1, 1, 2, 2)
    nodes = [helper.make_node("MaxUnpool", ["x", "p"], ["y"], **UNPOOLED)]
    path = save(tiny_model(nodes, {"x": [1, 1, 2, 2]}, ["y"], {"p": places}, opset=11), tmp_path)
    assert_as_onnxruntime(import_model(path, native=True).graph, path)


def test_a_larger_result_of_unpooling_ends_in_zeros(tmp_path: Path) -> None:
    """As in the reference of ONNX; onnxruntime counts places in the larger shape."""
    constants = {"p": np.array([5, 7, 13, 15], np.int64).reshape(1, 1, 2, 2), "s": ints(1, 1, 5, 6)}
    nodes = [helper.make_node("MaxUnpool", ["x", "p", "s"], ["y"], **UNPOOLED)]
    path = save(tiny_model(nodes, {"x": [1, 1, 2, 2]}, ["y"], constants, opset=11), tmp_path)
    feeds = {"x": floats(1, 1, 2, 2)}
    (expected,) = onnx.reference.ReferenceEvaluator(onnx.load(path)).run(["y"], feeds)
    found = Interpreter(import_model(path, native=True).graph).run(feeds)["y"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("place", "shape"), [(16, (1, 1, 4, 4)), (-1, (1, 1, 4, 4)), (15, (1, 1, 4, 3))])
def test_places_beyond_the_result_are_errors(place: int, shape: tuple[int, ...], tmp_path: Path) -> None:
    constants = {"p": np.array([5, 7, 13, place], np.int64).reshape(1, 1, 2, 2), "s": ints(*shape)}
    nodes = [helper.make_node("MaxUnpool", ["x", "p", "s"], ["y"], **UNPOOLED)]
    path = save(tiny_model(nodes, {"x": [1, 1, 2, 2]}, ["y"], constants, opset=11), tmp_path)
    with pytest.raises(QglowError, match="places for|a result of"):
        import_model(path, native=True)


def test_computed_bounds_and_statistics(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0, 2, 3], keepdims=0),
        helper.make_node("Abs", ["mean"], ["variance"]),
        helper.make_node("BatchNormalization", ["x", "s", "mean", "mean", "variance"], ["n"]),
        helper.make_node("ReduceMin", ["n"], ["low"], axes=[0, 1, 2, 3], keepdims=0),
        helper.make_node("Mul", ["low", "half"], ["bound"]),
        helper.make_node("Clip", ["n", "bound"], ["c"]),
        helper.make_node("Neg", ["bound"], ["upper"]),
        helper.make_node("Clip", ["c", "bound", "upper"], ["y"]),
    ]
    constants = {"s": floats(6), "half": np.array(0.5, np.float32)}
    path = save(tiny_model(nodes, {"x": IMAGE}, ["y"], constants, opset=13), tmp_path)
    assert_as_onnxruntime(import_model(path).graph, path)


def test_absolute_values_of_integers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ArgMax", ["x"], ["place"], axis=1),
        helper.make_node("Sub", ["place", "three"], ["d"]),
        helper.make_node("Neg", ["d"], ["e"]),
        helper.make_node("Abs", ["e"], ["a"]),
        helper.make_node("Cast", ["a"], ["y"], to=1),
    ]
    path = save(tiny_model(nodes, {"x": IMAGE}, ["y"], {"three": ints(3)}, opset=13), tmp_path)
    assert_as_onnxruntime(import_model(path).graph, path)


def test_places_that_are_computed_become_one_hot(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ArgMax", ["x"], ["place"], axis=1, keepdims=0),
        helper.make_node("OneHot", ["place", "depth", "values"], ["y"], axis=1),
    ]
    constants = {"depth": np.array([6], np.int64), "values": np.array([-1, 2], np.float32)}
    path = save(tiny_model(nodes, {"x": IMAGE}, ["y"], constants, opset=13), tmp_path)
    assert_as_onnxruntime(import_model(path).graph, path)


@pytest.mark.parametrize(("limit", "step"), [(1e18, 1), (5, 0)])
def test_a_range_without_bound_is_refused_before_it_is_made(limit: float, step: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Range", ["zero", "limit", "step"], ["made"]),
        helper.make_node("Cast", ["made"], ["real"], to=1),
        helper.make_node("Add", ["x", "real"], ["y"]),
    ]
    numbers = {"zero": 0, "limit": int(limit), "step": step}
    constants = {name: np.array(number, np.int64) for name, number in numbers.items()}
    path = save(tiny_model(nodes, {"x": (1,)}, ["y"], constants, opset=13), tmp_path)
    with pytest.raises(QglowError, match="memory|delta in Range operator can not be zero|the step is 0"):
        import_model(path)


def test_places_without_bound_are_refused_before_they_are_made(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ArgMax", ["x"], ["place"], axis=1),
        helper.make_node("OneHot", ["place", "depth", "values"], ["y"]),
    ]
    constants = {"depth": np.array(10**15, np.int64), "values": np.array([0, 1], np.float32)}
    path = save(tiny_model(nodes, {"x": IMAGE}, ["y"], constants, opset=13), tmp_path)
    with pytest.raises(QglowError, match="memory"):
        import_model(path)


@pytest.mark.parametrize("operator", composed_cases.BOUNDED)
def test_functions_of_a_part_of_the_numbers(operator: str, tmp_path: Path) -> None:
    middle, reach = composed_cases.BOUNDED[operator]
    nodes = [
        helper.make_node("Sin", ["x"], ["s"]),
        helper.make_node("Mul", ["s", "reach"], ["r"]),
        helper.make_node("Add", ["r", "middle"], ["m"]),
        helper.make_node(operator, ["m"], ["y"]),
    ]
    constants = {"reach": np.float32(reach), "middle": np.float32(middle)}
    path = save(tiny_model(nodes, {"x": IMAGE}, ["y"], constants, opset=13), tmp_path)
    assert_as_onnxruntime(import_model(path).graph, path)


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_sums_and_products_along_an_axis(exclusive: int, reverse: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["whole"], to=TensorProto.INT32),
        helper.make_node("CumSum", ["whole", "axis"], ["sums"], exclusive=exclusive, reverse=reverse),
        helper.make_node("Cast", ["sums"], ["y"], to=TensorProto.FLOAT),
        helper.make_node("CumProd", ["x", "axis"], ["z"], exclusive=exclusive, reverse=reverse),
    ]
    model = tiny_model(nodes, {"x": (3, 4, 2)}, ["y", "z"], {"axis": np.int64(1)}, opset=26)
    x = np.random.default_rng(2).integers(-4, 5, (3, 4, 2)).astype(np.float32)
    found = Interpreter(import_model(save(model, tmp_path), native=True).graph).run({"x": x})
    for name, run, neutral in (("y", np.cumsum, 0), ("z", np.cumprod, 1)):
        whole = x[:, ::-1] if reverse else x
        whole = np.concatenate([np.full((3, 1, 2), neutral), whole], 1)[:, :4] if exclusive else whole
        expected = run(whole, 1)
        np.testing.assert_array_equal(found[name], expected[:, ::-1] if reverse else expected)


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_running_sums_meet_no_number_before_its_place(exclusive: int, reverse: int, tmp_path: Path) -> None:
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], exclusive=exclusive, reverse=reverse)
    path = save(tiny_model([node], {"x": (5, 4)}, ["y"], {"axis": np.int64(1)}, opset=14), tmp_path)
    none, inf = np.nan, np.inf
    x = np.array(
        [[1, none, 2, 3], [1, inf, 2, -inf], [-0.0, -0.0, 0, 1], [2, 3, 4, -inf], [1e38, 3e38, -3e38, 1]]
    )
    x = x.astype(np.float32)
    (expected,) = session(path).run(None, {"x": x})
    graph = import_model(path).graph
    np.testing.assert_array_equal(Interpreter(graph).run({"x": x})["y"], expected)
    np.testing.assert_array_equal(compile_graph(graph)({"x": x})["y"], expected)


def test_places_of_whole_tensors_are_reshapes(tmp_path: Path) -> None:
    grid = np.stack(np.meshgrid(np.arange(2), np.arange(3), indexing="ij"), -1)
    nodes = [
        helper.make_node("GatherND", ["x", "grid"], ["all"]),
        helper.make_node("ScatterND", ["x", "grid", "all"], ["replaced"]),
        helper.make_node("GatherND", ["x", "turned"], ["turned_all"]),
    ]
    constants = {"grid": grid, "turned": grid[::-1].copy()}
    model = tiny_model(nodes, {"x": (2, 3)}, ["replaced", "turned_all"], constants)
    path = save(model, tmp_path)
    graph = import_model(path, native=True).graph
    assert_as_onnxruntime(graph, path)
    assert [one.operator.name for one in graph.nodes].count("Gather") == 1
