"""Lowering: which instructions may leave out places that do not matter."""

from __future__ import annotations

import numpy as np

from qglow.core.types import ElementType, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.normalization import Affine, LayerNormalization
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.ops.shape import Transpose
from qglow.instructions.program import Instruction, Program
from qglow.lowering import lower
from qglow.lowering.live import LiveResults, spread_live

COUNT = "count"
PLACES = {"y": ((1, COUNT),)}


def with_count(builder: GraphBuilder) -> None:
    builder.input(COUNT, TensorType(ElementType.INT64, (1,)))


def computing(program: Program) -> list[Instruction]:
    return [i for i in program.code if i.operation.touches_memory]


def finished(builder: GraphBuilder, result: Value) -> Graph:
    result.name = "y"
    return builder.finish(result)


def normalized() -> Graph:
    builder = GraphBuilder("normalized")
    with_count(builder)
    x = builder.input("x", float_type(1, 6, 32))
    ones = builder.constant("ones", np.ones(32, np.float32))
    return finished(builder, builder.node(LayerNormalization(-1), x, ones, ones))


def test_parts_of_an_operator_have_the_places_of_its_result() -> None:
    program = lower(normalized(), limits=LiveResults(PLACES), whole=False)
    found = {rule for i in computing(program) for rule in i.live}
    assert all(len(i.live) == 1 for i in computing(program)) and len(computing(program)) > 5
    assert {(rule.count.name, rule.extent, rule.inner) for rule in found} == {(COUNT, 6, 32), (COUNT, 6, 1)}


def test_operators_that_are_joined_have_the_places_of_their_result() -> None:
    (only,) = computing(lower(normalized(), limits=LiveResults(PLACES)))
    assert [(rule.count.name, rule.extent, rule.inner) for rule in only.live] == [(COUNT, 6, 32)]


def test_nothing_is_left_out_where_nothing_is_known() -> None:
    assert all(i.live == () for i in computing(lower(normalized())))


def test_a_value_that_a_mean_over_places_reads_is_needed_whole() -> None:
    builder = GraphBuilder("mean")
    with_count(builder)
    x, other = (builder.input(name, float_type(1, 6, 32)) for name in ("x", "other"))
    total = builder.node(Add(), x, other)
    mean = builder.node(ReduceMean(axes=(1,), keepdims=True), total)
    graph = finished(builder, builder.node(Mul(), total, mean))
    found = spread_live(graph, PLACES)
    assert set(found) == {graph.value("y")}


def test_an_output_is_needed_whole() -> None:
    builder = GraphBuilder("outputs")
    with_count(builder)
    x, other = (builder.input(name, float_type(1, 6, 32)) for name in ("x", "other"))
    total = builder.node(Add(), x, other)
    result = builder.node(Mul(), total, other)
    result.name = "y"
    graph = builder.finish(total, result)
    assert set(spread_live(graph, PLACES)) == {result}


def test_places_follow_the_order_of_the_axes() -> None:
    builder = GraphBuilder("moved")
    with_count(builder)
    x = builder.input("x", float_type(1, 6, 4, 8))
    heads = builder.node(Transpose((0, 2, 1, 3)), x)
    y = builder.input("y_in", float_type(1, 4, 8, 6))
    heads.name = "heads"
    graph = finished(builder, builder.node(MatMul(), heads, y))
    places = {"heads": ((2, COUNT),), "y": ((2, COUNT), (3, COUNT))}
    program = lower(graph, limits=LiveResults(places, {"y": COUNT}))
    moved, product = computing(program)
    assert [(rule.extent, rule.inner) for rule in moved.live] == [(6, 8)]
    assert [(rule.extent, rule.inner) for rule in product.live] == [(6, 6), (6, 1)]
    assert product.summed is not None and product.summed.name == COUNT and moved.summed is None


def test_one_factor_for_all_channels_moves_nothing() -> None:
    builder = GraphBuilder("scaled")
    x = builder.input("x", float_type(1, 4, 6, 6))
    factors = [
        builder.constant(name, np.full(4, number, np.float32)) for name, number in (("r", 0.5), ("t", 0))
    ]
    program = lower(builder.finish(builder.node(Affine(), x, *factors)))
    (affine,) = computing(program)
    assert affine.operation.opcode == "affine" and affine.operand("scale").type.shape == (6,)
