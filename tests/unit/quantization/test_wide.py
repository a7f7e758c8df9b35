"""Rules with dtype int16: which values become int16, and what lies between them and int8."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from qglow.core.types import ElementType, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Node
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.pool import GlobalAveragePool
from qglow.graph.ops.quantize import Dequantize, Quantize, Rescale
from qglow.graph.ops.shape import Concat
from qglow.graph.ops.softmax import Softmax
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.pipeline import QuantizedGraph, quantize, quantize_with
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from tests.unit.profiling.networks import profile_of, residual_network, samples

WIDE = ElementType.INT16


def rules(*names: str, dtype: str = "int16") -> Recipe:
    """Options with one rule a name."""
    return Recipe(rules=tuple(Rule(Match(name=name), dtype=dtype) for name in names))


def residual(*names: str) -> QuantizedGraph:
    return quantize(residual_network(), profile_of(), rules(*names))


def element(found: QuantizedGraph, name: str) -> ElementType:
    """Of the integers of a value."""
    return found.graph.value(name).type.element


def giver(found: QuantizedGraph, name: str) -> Node:
    """The node that gives a value."""
    node = found.graph.value(name).producer
    assert node is not None
    return node


def quantized(graph: Graph, *names: str, bound: float = 2.0) -> QuantizedGraph:
    """The graph with every value between -bound and bound, under rules for these names."""
    statistics = {}
    for value in graph.values():
        if value.type.is_float:
            statistics[value.name] = ValueProfile.of_shape((1, 1))
            spread = np.linspace(-bound, bound, 4001, dtype=np.float32)
            statistics[value.name].observe(spread[:, None])
    options = dataclasses.replace(rules(*names), equalize=False, correct_bias=False)
    return quantize_with(graph, statistics, 1, options)


def rescales(found: QuantizedGraph) -> list[tuple[ElementType, ElementType]]:
    """Types before and after every Rescale."""
    pairs = []
    for node in found.graph.nodes:
        if isinstance(node.operator, Rescale):
            source = node.inputs[0]
            assert source is not None
            pairs.append((source.type.element, node.output.type.element))
    return pairs


def test_every_value_is_int16_under_a_rule_for_all() -> None:
    found = residual(".*")
    kinds = {v.type.element for v in found.graph.values() if v.type.is_quantized and not v.is_constant}
    weights = {v.type.element for v in found.graph.constants() if v.type.is_quantized}
    assert kinds == {WIDE} and weights == {ElementType.INT8}
    assert not rescales(found) and not found.report.float_nodes


def test_an_int16_network_is_nearer_to_the_float_one() -> None:
    real, narrow, wide = residual_network(), residual().graph, residual(".*").graph
    signal, noise = 0.0, {"narrow": 0.0, "wide": 0.0}
    for sample in samples(20, seed=5):
        fed = {"x": sample.inputs["x"][None]}
        wanted = Interpreter(real).run(fed)["y"]
        signal += float((wanted.astype(np.float64) ** 2).sum())
        for name, graph in (("narrow", narrow), ("wide", wide)):
            noise[name] += float(((Interpreter(graph).run(fed)["y"] - wanted).astype(np.float64) ** 2).sum())
    gained = 10 * np.log10(noise["narrow"] / noise["wide"])
    assert gained > 5.0, gained


def test_a_rule_for_one_node_makes_its_result_int16_and_no_other() -> None:
    found = residual("depthwise")
    wide = {v.name for v in found.graph.values() if v.type.element is WIDE}
    assert "depthwise" in wide and element(found, "stem") is ElementType.INT8
    assert element(found, "total") is ElementType.INT8
    # The pointwise Conv reads int8: int16 would be twice its products. The Add takes either.
    assert rescales(found) == [(WIDE, ElementType.INT8)]
    pointwise, total = giver(found, "pointwise"), giver(found, "total")
    assert [v.type.element for v in pointwise.inputs[:1] if v] == [ElementType.INT8]
    assert {v.type.element for v in total.inputs if v} == {WIDE, ElementType.INT8}


def test_an_int16_sum_reads_int8_as_it_is() -> None:
    found = residual("pointwise")
    node = giver(found, "pointwise")
    assert [v.type.element for v in node.inputs[:1] if v] == [ElementType.INT8]
    assert node.output.type.element is WIDE and not rescales(found)


def test_an_input_is_int16_for_the_nodes_that_want_it() -> None:
    assert element(residual("stem"), "x_int16") is WIDE


def test_what_is_only_read_as_int8_is_int8_at_once() -> None:
    found = residual("x", "stem")
    assert element(found, "stem") is ElementType.INT8 and not rescales(found)
    assert element(residual("x"), "x_int8") is ElementType.INT8


def test_an_input_is_int16_by_its_own_rule_where_int16_can_be_read() -> None:
    b = GraphBuilder("g")
    x, y = (b.input(name, float_type(64, 512)) for name in "xy")
    w = b.constant("w", np.eye(512, dtype=np.float32))
    found = quantized(b.finish(b.node(Gemm(), b.node(Add(), x, y), w)), "x")
    assert element(found, "x_int16") is WIDE and element(found, "y_int8") is ElementType.INT8


def test_data_movement_keeps_the_type_of_its_operand() -> None:
    assert element(residual("mean"), "flat") is WIDE
    assert element(residual("flat"), "mean") is ElementType.INT8


def test_a_later_rule_takes_int16_back() -> None:
    options = rules(".*")
    options = dataclasses.replace(
        options,
        rules=(
            *options.rules,
            Rule(Match(name="total"), dtype="int8"),
            Rule(Match(name="mean"), dtype="float"),
        ),
    )
    found = quantize(residual_network(), profile_of(), options)
    assert element(found, "total") is ElementType.INT8 and element(found, "depthwise") is WIDE
    assert [node.operator for node in found.report.float_nodes] == ["GlobalAveragePool"]


def test_what_has_no_int16_form_stays_float_with_a_reason() -> None:
    b = GraphBuilder("g")
    x = b.input("x", float_type(4, 8))
    hidden = b.node(Gemm(), x, b.constant("w", np.eye(8, dtype=np.float32)), name="hidden")
    gate = b.node(Sigmoid(), hidden, name="gate")
    product = b.node(
        MatMul(), b.node(Add(), hidden, gate, name="sum"), b.input("y", float_type(8, 3)), name="product"
    )
    image = b.node(GlobalAveragePool(), b.input("i", float_type(1, 2, 300, 300)), name="pool")
    reasons = {n.operator: n.reason for n in quantized(b.finish(product, image), ".*").report.float_nodes}
    assert set(reasons) == {"Sigmoid", "MatMul", "GlobalAveragePool"}
    assert "table" in reasons["Sigmoid"] and "computed" in reasons["MatMul"]
    assert "int32" in reasons["GlobalAveragePool"]


def test_a_table_between_int16_values_reads_and_gives_int8() -> None:
    """Neither is a rescale to int16 folded into a table, nor one from it."""
    b = GraphBuilder("g")
    x = b.input("x", float_type(64, 512))
    first = b.node(Add(), x, x, name="first")
    gate = b.node(Sigmoid(), first, name="gate")
    w = b.constant("w", np.eye(512, dtype=np.float32))
    last = b.node(Add(), gate, first, name="last")
    found = quantized(b.finish(b.node(Gemm(), last, w, name="y")), "first", "last")
    node = giver(found, "gate")
    assert {v.type.element for v in (*node.inputs, *node.outputs) if v} == {ElementType.INT8}
    assert (WIDE, ElementType.INT8) in rescales(found)


def test_concat_has_one_type_and_its_operands_are_rescaled() -> None:
    b = GraphBuilder("g")
    x = b.input("x", float_type(1, 8))
    w = b.constant("w", np.eye(8, dtype=np.float32))
    parts = [b.node(Gemm(), x, w, name=name) for name in ("left", "right")]
    joined = b.node(Concat(axis=1), *parts, name="joined")
    out = b.node(Gemm(), joined, b.constant("v", np.ones((16, 4), np.float32)), name="out")
    graph = b.finish(out, parts[0])
    found = quantized(graph, "left")
    assert element(found, "joined") is ElementType.INT8
    assert (WIDE, ElementType.INT8) in rescales(found)
    found = quantized(graph, "joined")
    assert element(found, "joined") is WIDE


def test_a_range_known_in_advance_is_covered_in_int16_as_it_was_seen() -> None:
    b = GraphBuilder("g")
    x = b.input("x", float_type(4, 8))
    shares = b.node(Softmax(axis=1), x, name="shares")
    y = b.node(Gemm(), shares, b.constant("w", np.eye(8, dtype=np.float32)), name="y")
    found = quantized(b.finish(y), "y", bound=1.0)
    parameters = found.graph.value("shares_int16").type.quantization
    assert parameters is not None and parameters.scale == pytest.approx(1 / 32767)


def test_int8_inputs_and_outputs_stay_int8_around_int16() -> None:
    options = dataclasses.replace(rules(".*"), io="int8")
    found = quantize(residual_network(), profile_of(), options)
    assert {v.type.element for v in (*found.graph.inputs, *found.graph.outputs)} == {ElementType.INT8}
    assert not any(isinstance(n.operator, Quantize | Dequantize) for n in found.graph.nodes)
    assert element(found, "total") is WIDE


def test_text_restores_an_int16_graph() -> None:
    graph = residual("stem", "depthwise").graph
    text = print_graph(graph)
    assert "i16[S:" in text
    restored = parse_graph(text, constant_data(graph))
    assert print_graph(restored) == text
    kinds = [TensorType(v.type.element, v.type.shape, v.type.quantization) for v in restored.values()]
    assert kinds == [v.type for v in graph.values()]


def test_the_report_names_the_range_that_int16_covers() -> None:
    tensors = {t.value: t for t in residual("stem").report.tensors}
    assert tensors["stem"].calibration == "minmax" and tensors["stem"].zero_point == 0
    assert tensors["stem"].high == pytest.approx(tensors["stem"].seen_high, rel=1e-3)
    assert tensors["total"].calibration == "kl"


def test_a_gemm_to_int16_is_not_cut_into_groups() -> None:
    """Groups are new nodes, for which no rule was written: they would be int8 without a word."""
    options = dataclasses.replace(rules("y"), group_size=4)
    found = quantize(residual_network(), profile_of(), options)
    assert sum(isinstance(node.operator, Gemm) for node in found.graph.nodes) == 1
    whole = quantize(residual_network(), profile_of(), dataclasses.replace(rules(), group_size=4))
    assert sum(isinstance(node.operator, Gemm) for node in whole.graph.nodes) == 2
