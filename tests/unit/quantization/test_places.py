"""Places that a model computes, such as those where it looks into an image, stay float."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper

import qglow
from qglow.core.types import Array, ElementType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.elementwise import Add, Mul, Relu, Sub
from qglow.graph.ops.functions import Floor
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.ranking import ArgMax
from qglow.graph.ops.reduce import ReduceSum
from qglow.graph.ops.shape import Cast
from qglow.quantization.placement import FloatReasons
from qglow.quantization.places import keep_places_float
from tests.end_to_end.test_dynamic_shapes import decibels
from tests.unit.importer.tiny import save, session, tiny_model

node = helper.make_node
SIZE = 24


def warped(folder: Path) -> Path:
    """An image moved by a flow that is added to the places of its pixels, and the flow that they tell.

    The places are numbers of pixels, as in networks for optical flow, from 0 to 23.
    """
    random = np.random.default_rng(4)
    steps = np.arange(SIZE, dtype=np.float32)
    pixels = np.stack(np.meshgrid(steps, steps)).reshape(1, 2, SIZE, SIZE)
    constants: dict[str, Array] = {
        "a": (random.normal(size=(8, 1, 3, 3)) / 3).astype(np.float32),
        "b": (random.normal(size=(2, 8, 3, 3)) / 12).astype(np.float32),
        "pixels": pixels,
        "half": np.array((SIZE - 1) / 2, np.float32),
        "one": np.array(1, np.float32),
    }
    nodes = [
        node("Conv", ["x", "a"], ["features"], pads=[1] * 4),
        node("Relu", ["features"], ["active"]),
        node("Conv", ["active", "b"], ["step"], pads=[1] * 4),
        node("Add", ["pixels", "step"], ["places"]),
        node("Div", ["places", "half"], ["parts"]),
        node("Sub", ["parts", "one"], ["centred"]),
        node("Transpose", ["centred"], ["grid"], perm=[0, 2, 3, 1]),
        node("GridSample", ["x", "grid"], ["y"], align_corners=1),
        node("Sub", ["places", "pixels"], ["flow"]),
    ]
    shapes = {"x": (1, 1, SIZE, SIZE)}
    return save(tiny_model(nodes, shapes, ["y", "flow"], constants, opset=16), folder)


def picture(seed: int) -> Array:
    random = np.random.default_rng(seed)
    rough = random.normal(size=(1, 1, 4, 4)).repeat(6, 2).repeat(6, 3)
    return (rough * random.uniform(0.5, 1.5) + 0.1 * random.normal(size=rough.shape)).astype(np.float32)


def test_a_flow_has_no_steps_of_the_size_of_an_image(tmp_path: Path) -> None:
    model = qglow.load_model(warped(tmp_path))
    quantized = model.quantize(model.profile([picture(seed) for seed in range(8)]), repair=False)
    x = picture(99)
    y, flow = session(model.path).run(None, {"x": x})
    found = quantized.compile(threads=1)({"x": x})
    assert decibels(found["flow"], flow) > 30
    assert decibels(found["y"], y) > 30
    float_nodes = {row.name: row.reason for row in quantized.report.float_nodes}
    assert all("holds places" in float_nodes[name] for name in ("Add_3", "Sub_8"))
    assert not {"Conv_0", "Conv_2"} & set(float_nodes)


def bent(folder: Path) -> Path:
    """An image rectified by a spline through 20 points, as before text is read: products give the places."""
    random = np.random.default_rng(5)
    across = np.linspace(-1, 1, 10)
    points = np.concatenate([np.stack([across, np.full(10, side)], 1) for side in (-1.0, 1.0)])
    steps = np.linspace(-1, 1, SIZE)
    pixels = np.stack(np.meshgrid(steps, steps), 2).reshape(-1, 2)
    ones, rest = np.ones((20, 1)), np.zeros((3, 3))
    radial = _radial(points[:, None] - points)
    system = np.block([[ones, points, radial], [rest[:2, :1], rest[:2, :2], points.T], [rest[:1], ones.T]])
    basis = np.concatenate([np.ones((SIZE**2, 1)), pixels, _radial(pixels[:, None] - points)], 1)
    constants: dict[str, Array] = {
        "a": random.normal(size=(8, 1, 3, 3)) / 3,
        "b": random.normal(size=(SIZE**2 * 8 // 9, 40)) / 400,
        "points": points[None],
        "end": np.zeros((1, 3, 2)),
        "inverse": np.linalg.inv(system),
        "basis": basis,
    }
    constants = {name: data.astype(np.float32) for name, data in constants.items()}
    constants |= {"pair": np.array([1, 20, 2]), "image": np.array([1, SIZE, SIZE, 2])}
    nodes = [
        node("Conv", ["x", "a"], ["features"], strides=[3, 3], pads=[1] * 4),
        node("Flatten", ["features"], ["row"]),
        node("MatMul", ["row", "b"], ["layer"]),
        node("Reshape", ["layer", "pair"], ["steps"]),
        node("Add", ["points", "steps"], ["moved"]),
        node("Concat", ["moved", "end"], ["ends"], axis=1),
        node("MatMul", ["inverse", "ends"], ["spline"]),
        node("MatMul", ["basis", "spline"], ["places"]),
        node("Reshape", ["places", "image"], ["grid"]),
        node("GridSample", ["x", "grid"], ["y"], align_corners=1, padding_mode="border"),
    ]
    return save(tiny_model(nodes, {"x": (1, 1, SIZE, SIZE)}, ["y"], constants, opset=16), folder)


def _radial(offsets: Array) -> Array:
    squares = np.square(offsets).sum(-1)
    result: Array = squares * np.log(squares + 1e-6)
    return result


def test_a_spline_bends_an_image_in_float(tmp_path: Path) -> None:
    model = qglow.load_model(bent(tmp_path))
    quantized = model.quantize(model.profile([picture(seed) for seed in range(8)]), repair=False)
    x = picture(99)
    [y] = session(model.path).run(None, {"x": x})
    assert decibels(quantized.compile(threads=1)({"x": x})["y"], y) > 30
    float_nodes = {row.name for row in quantized.report.float_nodes}
    assert {"MatMul_6", "MatMul_7"} <= float_nodes
    assert not {"Conv_0", "MatMul_2"} & float_nodes


def chosen(decision: str) -> Graph:
    """Rows of a table: a layer, a factor, a sum, then their numbers, by rounding or by the largest."""
    b = GraphBuilder("g")
    x, table = b.input("x", float_type(4, 40)), b.input("table", float_type(16, 3))
    hidden = b.node(Relu(), x, name="hidden")
    w = b.constant("w", np.ones((40, 8), np.float32))
    layer = b.node(Gemm(), hidden, w, name="layer")
    scaled = b.node(Mul(), layer, b.constant("two", np.array(2, np.float32)), name="scaled")
    place = b.node(Add(), scaled, b.constant("ones", np.ones(8, np.float32)), name="place")
    if decision == "largest":
        numbers = b.node(ArgMax(axis=1, keepdims=False), place, name="numbers")
        rest = b.node(Relu(), place, name="rest")
    else:
        first = b.node(Floor(), place, name="first")
        rest = b.node(Sub(), place, first, name="rest")
        numbers = b.node(Cast(to=ElementType.INT64), first, name="numbers")
    numbers = b.node(Add(), numbers, b.constant("offset", np.array(1, np.int64)), name="moved")
    return b.finish(b.node(Gather(axis=0), table, numbers, name="rows"), rest)


def kept(graph: Graph) -> set[str]:
    reasons: FloatReasons = {}
    keep_places_float(graph, reasons)
    return {node.output.name for node in graph.nodes if node in reasons}


def test_what_computes_a_place_is_kept_back_to_the_layer() -> None:
    assert kept(chosen("rounded")) == {"scaled", "place", "first", "rest"}


def test_the_largest_of_scores_is_no_place() -> None:
    assert kept(chosen("largest")) == set()


def test_a_product_may_be_written_as_a_sum_of_few_products() -> None:
    b = GraphBuilder("g")
    x, table = b.input("x", float_type(4, 40)), b.input("table", float_type(16, 3))
    layer = b.node(Gemm(), x, b.constant("w", np.ones((40, 3), np.float32)), name="layer")
    turned = b.node(Mul(), layer, b.constant("axis", np.ones(3, np.float32)), name="turned")
    place = b.node(ReduceSum(axes=(1,), keepdims=False), turned, name="place")
    many = b.node(ReduceSum(axes=(1,), keepdims=False), b.node(Relu(), x, name="parts"), name="many")
    both = b.node(Add(), place, many, name="both")
    first = b.node(Floor(), both, name="first")
    numbers = b.node(Cast(to=ElementType.INT64), first, name="numbers")
    graph = b.finish(b.node(Gather(axis=0), table, numbers, name="rows"))
    assert kept(graph) == {"turned", "place", "both", "first"}
