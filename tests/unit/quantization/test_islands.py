"""Which nodes run in int8, and the reasons of those that do not."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.elementwise import Add, Mul, Relu
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.movement import Pad
from qglow.graph.ops.selection import Max
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.graph.ops.softmax import Softmax
from qglow.quantization.islands import gain, plan_islands
from qglow.quantization.placement import float_reasons
from qglow.recipe.schema import Recipe


def gemm(b: GraphBuilder, x: Value, columns: int = 4, name: str | None = None) -> Value:
    count = len(b._graph.nodes)
    w = b.constant(f"w{count}", np.ones((x.type.shape[1], columns), np.float32))
    return b.node(Gemm(), x, w, name=name)


def start(*shape: int) -> tuple[GraphBuilder, Value]:
    b = GraphBuilder("g")
    return b, b.input("x", float_type(*shape))


def plan(graph: Graph, *keep: str) -> tuple[dict[str, str], list[list[str]]]:
    reasons = float_reasons(graph, Recipe(keep_float=keep))
    islands = plan_islands(graph, reasons)
    named = {node.output.name: reason for node, reason in reasons.items()}
    return named, [[node.output.name for node in island] for island in islands]


def test_softmax_splits_two_islands_and_says_why() -> None:
    b, x = start(2, 8)
    soft = b.node(Softmax(), gemm(b, x, name="first"), name="soft")
    reasons, islands = plan(b.finish(gemm(b, soft, name="second")))
    assert islands == [["first"], ["second"]]
    assert list(reasons) == ["soft"] and "Softmax is computed in float" in reasons["soft"]


@pytest.mark.parametrize("pattern", ["middle", "Gemm_1", "re:mid.*", "re:Gemm_1"])
def test_a_node_can_be_kept_float_by_name(pattern: str) -> None:
    b, x = start(2, 8)
    reasons, islands = plan(
        b.finish(gemm(b, gemm(b, gemm(b, x, name="a"), name="middle"), name="c")), pattern
    )
    assert islands == [["a"], ["c"]]
    assert reasons == {"middle": f"kept by keep_float {pattern}"}


def test_an_operator_can_be_kept_float() -> None:
    b, x = start(2, 8)
    reasons, islands = plan(b.finish(gemm(b, b.node(Relu(), x, name="r"))), "op:Gemm")
    assert islands == []
    assert set(reasons) == {"gemm_0", "r"}


def test_computed_weights_stay_float() -> None:
    b, x = start(4, 4)
    reasons, _ = plan(b.finish(b.node(Gemm(), x, x, name="y")))
    assert reasons == {"y": "its weights or bias are computed by the graph"}


def test_weights_that_are_not_finite_stay_float() -> None:
    b, x = start(2, 2)
    w = b.constant("w", np.array([[1, np.inf], [0, 1]], np.float32))
    reasons, _ = plan(b.finish(b.node(Gemm(), x, w, name="y")))
    assert reasons == {"y": "its w holds NaN or infinities"}


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_reads_a_constant_that_is_not_finite_stays_float(number: float) -> None:
    b, x = start(2, 8)
    c = b.constant("c", np.full(8, number, np.float32))
    reasons, _ = plan(b.finish(b.node(Max(), gemm(b, x, 8), c, name="y")))
    assert reasons["y"] == "its operand 'c' holds NaN or infinities"


def test_padding_with_another_value_than_zero_stays_float() -> None:
    b, x = start(2, 8)
    padded = b.node(Pad((0, 1, 0, 1), value=-5.0), gemm(b, x), name="p")
    reasons, _ = plan(b.finish(gemm(b, padded, name="y")))
    assert "pads with -5" in reasons["p"]


def test_light_work_alone_is_not_worth_its_conversions() -> None:
    b, x = start(2, 8)
    y = b.node(Add(), x, b.node(Relu(), x, name="r"), name="y")
    reasons, islands = plan(b.finish(y))
    assert islands == []
    assert reasons["y"] == reasons["r"]
    assert "save 96 bytes in work on its elements and cost 128 in conversions" in reasons["y"]


def test_light_work_between_sums_is_part_of_the_island() -> None:
    b, x = start(2, 8)
    turned = b.node(Transpose((1, 0)), b.node(Relu(), gemm(b, x, name="a"), name="r"), name="t")
    reasons, islands = plan(b.finish(gemm(b, turned, name="y")))
    assert (reasons, islands) == ({}, [["a", "r", "t", "y"]])


def test_a_small_function_at_the_end_stays_float() -> None:
    b, x = start(2, 8)
    reasons, islands = plan(b.finish(b.node(Sigmoid(), gemm(b, x, name="a"), name="y")))
    assert islands == [["a"]]
    assert "leaves int8 at once" in reasons["y"]


def test_a_function_in_the_middle_is_a_table() -> None:
    b, x = start(2, 8)
    reasons, islands = plan(b.finish(gemm(b, b.node(Sigmoid(), gemm(b, x), name="s"), name="y")))
    assert reasons == {} and len(islands) == 1


def test_a_function_whose_operand_others_read_in_int8_is_a_table() -> None:
    b, x = start(2, 8)
    a = gemm(b, x, name="a")
    reasons, _ = plan(b.finish(b.node(Sigmoid(), a, name="s"), gemm(b, a, name="c")))
    assert reasons == {}


def test_arithmetic_on_shapes_is_not_reported() -> None:
    b, x = start(2, 8)
    counts = b.input("counts", float_type(2, 4))
    shape = b.constant("shape", np.array([1, 2], np.int64))
    total = b.node(Add(), shape, shape, name="integers")
    reasons, _ = plan(b.finish(gemm(b, x, name="y"), total, b.node(Reshape((8,)), counts, name="r")))
    assert set(reasons) == {"r"}


def test_a_gain_counts_results_weights_and_multiplications() -> None:
    b, x = start(2, 8)
    graph = b.finish(b.node(Relu(), gemm(b, x, name="a"), name="y"))
    assert gain(graph.nodes) == 3 * 8 + 3 * 32 + 2 * 8 * 4 // 4 + 3 * 8


def test_products_of_activations_are_int8_but_for_sums_beyond_int32() -> None:
    b = GraphBuilder("g")
    x, y = b.input("x", float_type(2, 40000)), b.input("y", float_type(40000, 2))
    reasons, _ = plan(b.finish(b.node(MatMul(), x, y, name="z")))
    assert reasons == {"z": "sums of 40000 products might be beyond int32"}
    b = GraphBuilder("g")
    x, y = b.input("x", float_type(8, 400)), b.input("y", float_type(400, 8))
    reasons, islands = plan(b.finish(b.node(MatMul(), x, y, name="z")))
    assert not islands and "int8 would save 6592 bytes" in reasons["z"]
    b = GraphBuilder("g")
    x, y = b.input("x", float_type(128, 64)), b.input("y", float_type(64, 128))
    reasons, islands = plan(b.finish(b.node(MatMul(), x, y, name="z")))
    assert islands == [["z"]]


def test_light_nodes_between_products_and_float_operators_stay_float() -> None:
    b = GraphBuilder("g")
    x, y = b.input("x", float_type(128, 64)), b.input("y", float_type(64, 128))
    scores = b.node(MatMul(), x, y, name="scores")
    mask = b.constant("mask", np.float32(-1e9))
    masked = b.node(Add(), b.node(Relu(), scores, name="relu"), mask, name="masked")
    reasons, islands = plan(b.finish(b.node(Softmax(), masked, name="soft")))
    assert islands == [["scores"]]
    assert all("which gives float itself" in reasons[name] for name in ("relu", "masked"))


def test_light_nodes_between_sums_of_both_kinds_stay_int8() -> None:
    b, x = start(64, 64)
    left = gemm(b, x, 64)
    product = b.node(MatMul(), left, left, name="product")
    total = b.node(Add(), product, left, name="total")
    reasons, islands = plan(b.finish(b.node(Softmax(), total, name="soft")))
    assert list(reasons) == ["soft"] and len(islands) == 1


def test_a_mask_that_other_nodes_read_too_leaves_its_sums_float() -> None:
    b = GraphBuilder("g")
    x, y = b.input("x", float_type(128, 64)), b.input("y", float_type(64, 128))
    mask = b.node(Mul(), b.input("hidden", float_type(1, 128)), b.constant("low", np.float32(-1e4)), name="m")
    sums = []
    for layer in range(2):
        scores = b.node(MatMul(), x, y, name=f"scores{layer}")
        masked = b.node(Add(), scores, mask, name=f"masked{layer}")
        sums.append(b.node(Softmax(), masked, name=f"soft{layer}"))
    reasons, islands = plan(b.finish(*sums))
    assert islands == [["scores0"], ["scores1"]]
    assert all("which gives float itself" in reasons[f"masked{layer}"] for layer in range(2))


def test_long_chains_are_planned() -> None:
    """Light nodes behind each other, more of them than Python calls itself."""
    b, x = start(1, 8)
    for _ in range(1500):
        x = b.node(Relu(), x)
    graph = b.finish(gemm(b, x))
    reasons, islands = plan(graph)
    assert len(islands) <= 1 and len(reasons) <= 1501
