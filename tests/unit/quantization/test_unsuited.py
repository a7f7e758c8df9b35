"""Nodes whose values int8 does not suit, and the reasons for which they stay float."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import Array, ElementType, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.elementwise import Add, Div, Mul, Relu
from qglow.graph.ops.functions import Floor, Sigmoid
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.reduce import ReduceSum
from qglow.graph.ops.shape import Cast, Concat, Reshape, Transpose
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.choices import Choices
from qglow.quantization.pipeline import quantize_with
from qglow.quantization.placement import Overruled, float_reasons
from qglow.quantization.report import QuantizationReport
from qglow.quantization.unsuited import has_rare_extremes, keep_unsuited_float
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.report.quantization_sections import STATED, quantization_sections

NORMAL = np.random.default_rng(1).normal(size=(4, 64)).astype(np.float32)


def kept(graph: Graph, **seen: Array) -> dict[str, str]:
    """Reasons by name of the node's result; seen: elements of values."""
    statistics = {}
    for name, elements in seen.items():
        statistics[name] = ValueProfile()
        statistics[name].observe(np.asarray(elements, np.float32))
    reasons = float_reasons(graph, Recipe())
    before = set(reasons)
    keep_unsuited_float(graph, statistics, reasons)
    return {node.output.name: reason for node, reason in reasons.items() if node not in before}


def masked() -> Array:
    return np.where(NORMAL > 1.0, np.float32(-1e4), NORMAL)


def test_what_reads_a_mark_or_gives_one_stays_float() -> None:
    b = GraphBuilder("g")
    x, mask = b.input("x", float_type(4, 64)), b.input("mask", float_type(4, 64))
    total = b.node(Add(), x, mask, name="total")
    low = b.node(Relu(), total, name="positive")
    w = b.constant("w", np.eye(64, dtype=np.float32))
    graph = b.finish(b.node(Gemm(), low, w, name="y"), b.node(Gemm(), total, w, name="z"))
    found = kept(graph, x=NORMAL, mask=np.array([[0, -1e4]]), total=masked(), positive=np.maximum(NORMAL, 0))
    assert set(found) == {"total", "positive", "z"}
    assert all("'total' holds the mark -1e+04" in reason for reason in found.values())


def joined(read: bool = False) -> tuple[Graph, dict[str, Array]]:
    """Boxes and scores put together, sorted by nothing; `read`: by a linear layer."""
    b = GraphBuilder("g")
    boxes, logits = b.input("boxes", float_type(4, 64)), b.input("logits", float_type(4, 64))
    scores = b.node(Sigmoid(), logits, name="scores")
    both = b.node(Concat(1), boxes, scores, name="both")
    turned = b.node(Transpose((1, 0)), both, name="turned")
    if read:
        turned = b.node(Gemm(), turned, b.constant("w", np.ones((4, 3), np.float32)), name="y")
    seen = {"boxes": 300.0 * np.abs(NORMAL), "scores": 1.0 / (1.0 + np.exp(-NORMAL)), "logits": NORMAL}
    return b.finish(turned), seen


def test_scores_that_would_have_no_levels_beside_boxes_stay_float() -> None:
    graph, seen = joined()
    found = kept(graph, **seen)
    assert set(found) == {"both", "turned"}
    assert all("'scores' would have few levels or none in the range of all" in why for why in found.values())


def test_joins_of_like_ranges_and_those_that_a_layer_reads_may_be_int8() -> None:
    graph, seen = joined()
    assert kept(graph, **{**seen, "boxes": NORMAL}) == {}
    assert kept(graph) == {}
    graph, seen = joined(read=True)
    assert kept(graph, **seen) == {}


def test_joined_scores_keep_their_order() -> None:
    graph, seen = joined()
    inputs = {"boxes": seen["boxes"].astype(np.float32), "logits": NORMAL}
    statistics = {}
    for name, elements in (*seen.items(), ("both", np.concatenate([seen["boxes"], seen["scores"]], 1))):
        statistics[name] = ValueProfile()
        statistics[name].observe(np.asarray(elements, np.float32))
    statistics["turned"] = statistics["both"]
    result = quantize_with(graph, statistics, 1, Recipe())
    exact, found = (Interpreter(each).run(inputs)["turned"][64:] for each in (graph, result.graph))
    assert float(np.abs(exact - found).max()) < 0.01


def test_sums_stay_float_up_to_the_mean_that_is_made_of_them() -> None:
    b = GraphBuilder("g")
    x, mask = b.input("x", float_type(1, 64, 8)), b.input("mask", float_type(1, 64, 1))
    total = b.node(ReduceSum((1,), False), x, name="total")
    count = b.node(Relu(), b.node(ReduceSum((1,), False), mask, name="count"), name="positive")
    mean = b.node(Relu(), b.node(Div(), total, count, name="mean"), name="after")
    shares = b.node(Div(), x, b.node(ReduceSum((1,)), x, name="whole"), name="shares")
    gated = b.node(Mul(), b.node(Relu(), x, name="own"), count, name="gated")
    found = kept(b.finish(mean, shares, gated))
    assert set(found) == {"positive", "mean"}
    assert found["mean"] == "'total' is a sum, which grows with the number of elements"


def test_sums_by_products_with_a_mask_stay_float_too() -> None:
    b = GraphBuilder("g")
    x, mask = b.input("x", float_type(1, 64, 8)), b.input("mask", float_type(1, 1, 64))
    count = b.node(ReduceSum((2,)), mask, name="count")
    total = b.node(MatMul(), mask, x, name="total")
    mean = b.node(Div(), b.node(Reshape((1, 8)), total), b.node(Reshape((1, 1)), count), name="mean")
    w = b.constant("w", np.eye(8, dtype=np.float32))
    norm = b.node(Div(), b.node(Gemm(), mean, w, name="z"), b.node(Reshape((1, 1)), count), name="other")
    found = kept(b.finish(norm))
    assert "mean" in found and "other" not in found


def test_values_without_statistics_have_no_marks() -> None:
    b = GraphBuilder("g")
    assert kept(b.finish(b.node(Relu(), b.input("x", float_type(4, 64)), name="y"))) == {}


def test_few_extremes_are_no_reason_for_sums_of_products() -> None:
    b = GraphBuilder("g")
    x = b.input("x", float_type(4, 64))
    w = b.constant("w", np.eye(64, dtype=np.float32))
    graph = b.finish(b.node(Gemm(), x, w, name="y"), b.node(Relu(), x, name="z"))
    elements = NORMAL.copy()
    elements[0, 0] = 5000.0
    assert set(kept(graph, x=elements)) == {"z"}


@pytest.mark.parametrize(
    ("extreme", "count", "rare"),
    [(60.0, 1, True), (60.0, 2, True), (60.0, 30, False), (3.0, 1, False), (0.0, 1, False)],
)
def test_constants_with_rare_extremes(extreme: float, count: int, rare: bool) -> None:
    data = NORMAL.copy() / 4
    data.reshape(-1)[:count] = extreme
    assert has_rare_extremes(data) is rare
    b = GraphBuilder("g")
    total = b.node(Add(), b.input("x", float_type(4, 64)), b.constant("c", data), name="total")
    found = kept(b.finish(total), x=NORMAL)
    assert ("the constant 'c' has rare extremes" in found.get("total", "")) is rare


@pytest.mark.parametrize("data", [np.zeros(100), np.float32(7.0), np.array([1e-3, 5.0]), np.full(50, 3.0)])
def test_constants_without(data: Array) -> None:
    assert not has_rare_extremes(np.asarray(data))


@pytest.mark.parametrize(("largest", "stays"), [(500, True), (1, False)])
def test_integers_that_become_floats(largest: int, stays: bool) -> None:
    """Those of a mask are 0 and 1, which int8 holds."""
    b = GraphBuilder("g")
    x = b.node(Cast(ElementType.FLOAT), b.input("i", TensorType(ElementType.INT64, (4, 64))), name="x")
    scaled = b.node(Mul(), x, b.constant("c", np.float32(0.5)), name="scaled")
    moved = b.node(Reshape((64, 4)), scaled, name="moved")
    graph = b.finish(b.node(Add(), moved, b.input("other", float_type(64, 4)), name="total"))
    found = kept(graph, x=np.arange(largest + 1)[None])
    assert set(found) == ({"scaled", "moved"} if stays else set())
    assert all("holds integers as floats" in reason for reason in found.values())


@pytest.mark.parametrize(("depth", "stays"), [(1, True), (2, False)])
def test_products_of_integers_that_became_floats(depth: int, stays: bool) -> None:
    """Positions by frequencies are angles, and their sums have one term; pixels may be integers too."""
    b = GraphBuilder("g")
    kind = TensorType(ElementType.INT64, (64, depth))
    x = b.node(Cast(ElementType.FLOAT), b.input("i", kind), name="x")
    graph = b.finish(b.node(Gemm(), x, b.constant("w", NORMAL[:depth, :8]), name="angles"))
    found = kept(graph, x=np.arange(64)[None])
    assert ("holds integers as floats" in found.get("angles", "")) is stays


def test_products_of_computed_frequencies() -> None:
    b = GraphBuilder("g")
    kind = TensorType(ElementType.INT64, (2, 1, 16))
    x = b.node(Cast(ElementType.FLOAT), b.input("i", kind), name="x")
    w = b.constant("w", np.broadcast_to(NORMAL[:1, :8, None], (2, 8, 1)))
    found = kept(b.finish(b.node(MatMul(), w, x, name="angles")), x=np.arange(64)[None])
    assert "holds integers as floats" in found["angles"]


def test_lengths_that_are_divided_and_rounded() -> None:
    """A convolution with a stride has so many frames; a second one reads these."""
    b = GraphBuilder("g")
    frames = b.node(Cast(ElementType.FLOAT), b.input("i", TensorType(ElementType.INT64, (4,))), name="length")
    for name in ("first", "second"):
        half = b.node(Mul(), frames, b.constant(f"{name}_factor", np.float32(0.5)), name=f"{name}_half")
        frames = b.node(Floor(), half, name=f"{name}_frames")
    graph = b.finish(b.node(Add(), frames, b.constant("one", np.float32(1.0)), name="y"))
    found = kept(graph, length=np.arange(500)[None])
    assert {"first_half", "second_half", "y"} <= set(found)
    assert "holds integers as floats" in found["y"]


def test_lengths_that_become_integers_in_several_steps() -> None:
    b = GraphBuilder("g")
    half = b.node(Mul(), b.input("x", float_type(4)), b.constant("c", np.float32(0.5)), name="half")
    graph = b.finish(b.node(Cast(ElementType.INT64), b.node(Floor(), half, name="whole"), name="y"))
    assert "decides by its result" in kept(graph)["half"]


def test_what_becomes_integers_or_answers() -> None:
    b = GraphBuilder("g")
    x, y = b.input("x", float_type(4, 64)), b.input("y", float_type(4, 64))
    places = b.node(Add(), b.node(Relu(), x, name="r"), y, name="places")
    both = b.node(Add(), x, y, name="both")
    answers = b.node(Compare("greater"), both, y, name="answers")
    graph = b.finish(b.node(Cast(ElementType.INT64), places, name="i"), answers, both)
    found = kept(graph)
    assert set(found) == {"places", "r"}, "an output is read in float as well"
    assert all("Cast 'Cast_" in reason and "decides by its result" in reason for reason in found.values())


def _quantized(*rules: Rule) -> QuantizationReport:
    b = GraphBuilder("g")
    x, w = b.input("x", float_type(4, 64)), b.constant("w", np.eye(64, dtype=np.float32))
    mask = b.constant("mask", np.where(NORMAL > 1.0, np.float32(-1e4), np.float32(0.0)))
    hidden = b.node(Gemm(), x, w, name="hidden")
    graph = b.finish(b.node(Gemm(), b.node(Add(), hidden, mask, name="total"), w, name="y"))
    statistics = {}
    for name, elements in {"x": NORMAL, "hidden": NORMAL, "total": masked(), "y": masked()}.items():
        statistics[name] = ValueProfile()
        statistics[name].observe(elements)
    return quantize_with(graph, statistics, 4, Recipe(rules=rules)).report


def test_a_rule_for_int8_overrules_reasons_of_values_and_the_report_says_so() -> None:
    rules = (Rule(Match(name=".*"), dtype="float"), Rule(Match(name="hidden|total"), dtype="int8"))
    plain, stated = _quantized(), _quantized(*rules)
    assert "Add_0" in {node.name for node in plain.float_nodes}
    assert not any(node.because for node in plain.quantized)
    because = {node.name: node.because for node in stated.quantized}
    assert set(because) == {"Gemm_0", "Add_0"} and not because["Gemm_0"]
    assert because["Add_0"].startswith(
        "rule 2 (name hidden|total); it would be float: 'total' holds the mark"
    )
    assert "int8: Add_0 (Add): rule 2" in stated.summary()
    assert any(section.title == STATED for section in quantization_sections(stated))


def test_a_rule_for_int8_does_not_overrule_what_has_no_int8_form_or_is_kept_by_name() -> None:
    b = GraphBuilder("g")
    graph = b.finish(b.node(Cast(ElementType.INT64), b.input("x", float_type(4)), name="y"))
    recipe = Recipe(keep_float=("y",), rules=(Rule(Match(name="y"), dtype="int8"),))
    reasons = float_reasons(graph, recipe)
    overruled = Overruled(Choices.of(graph, recipe), frozenset(reasons))
    overruled.take_from(reasons)
    assert len(reasons) == 1 and not overruled.stated
