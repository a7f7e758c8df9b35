"""Rules with dtype float16 and bfloat16: what is rounded, how weights are stored, what stays as it was."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.errors import UnsupportedError, VerificationError
from qglow.core.types import HALF_TYPES, ElementType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.functions import RoundTo
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Pad
from qglow.graph.ops.shape import Reshape
from qglow.graph.ops.softmax import Softmax
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.graph.verifier import verify_graph
from qglow.numerics.half import round_to, widen
from qglow.quantization.pipeline import QuantizedGraph, quantize, quantize_with
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from tests.unit.profiling.networks import profile_of, residual_network, samples


def options(*rules: tuple[str, str], **others: object) -> Recipe:
    """Options with one rule a name and dtype."""
    made = tuple(Rule(Match(name=name), dtype=dtype) for name, dtype in rules)
    return Recipe(rules=made, **others)  # type: ignore[arg-type]


def residual(*rules: tuple[str, str], **others: object) -> QuantizedGraph:
    return quantize(residual_network(), profile_of(), options(*rules, **others))


def roundings(graph: Graph) -> dict[str, str]:
    """Types by name of what is rounded."""
    return {n.output.name: n.operator.element for n in graph.nodes if isinstance(n.operator, RoundTo)}


def weights(graph: Graph, name: str) -> Value:
    """Those of the node that gives a value, rounded or not."""
    node = graph.value(name).producer
    if node is not None and isinstance(node.operator, RoundTo):
        node = graph.value(f"{name}__unrounded").producer
    found = None if node is None else node.inputs[1]
    assert found is not None
    return found


def unquantized(*rules: tuple[str, str], weight: float = 0.5, pad: float = 0.0) -> QuantizedGraph:
    """x to Gemm, Reshape, Pad, Softmax, of which nothing becomes int8."""
    b = GraphBuilder("g")
    w = b.constant("w", np.full((4, 6), weight, np.float32))
    y = b.node(Gemm(), b.input("x", float_type(1, 4)), w, name="y")
    moved = b.node(Reshape(shape=(2, 3)), y, name="moved")
    padded = b.node(Pad(pads=(0, 1, 0, 0), value=pad), moved, name="padded")
    graph = b.finish(b.node(Softmax(axis=1), padded, name="p"))
    return quantize_with(graph, {}, 1, options((".*", "float"), *rules))


@pytest.mark.parametrize("element", list(HALF_TYPES))
def test_a_chosen_node_is_rounded_and_its_weights_stored_in_16_bits(element: str) -> None:
    found, plain = residual(("pointwise", element)), residual(("pointwise", "float"))
    assert roundings(found.graph) == {"pointwise": element}
    stored, real = weights(found.graph, "pointwise"), weights(plain.graph, "pointwise")
    assert stored.name == real.name and stored.type.element is HALF_TYPES[element]
    assert stored.data is not None and real.data is not None
    assert np.array_equal(widen(stored.data), round_to(real.data, element))
    assert stored.type.byte_size * 2 == real.type.byte_size
    assert found.graph.value("b2").type.element is ElementType.FLOAT


def test_all_else_is_as_with_dtype_float() -> None:
    found, plain = residual(("pointwise", "float16")), residual(("pointwise", "float"))
    kinds = {v.name: v.type for v in found.graph.values()}
    changed = {v.name for v in plain.graph.values() if kinds[v.name] != v.type}
    assert changed == {weights(plain.graph, "pointwise").name}
    assert set(kinds) - {v.name for v in plain.graph.values()} == {"pointwise__unrounded"}
    assert [n.name for n in found.source.nodes] == [n.name for n in plain.source.nodes]


def test_results_are_those_of_rounding_by_hand() -> None:
    graph = residual((".*", "bfloat16")).graph
    fed = {"x": samples(1)[0].inputs["x"][None]}
    values: dict[str, np.ndarray] = dict(fed)
    Interpreter(graph).run(fed, lambda value, array: values.__setitem__(value.name, array))
    for name in roundings(graph):
        assert np.array_equal(values[name], round_to(values[f"{name}__unrounded"], "bfloat16"))
    assert set(roundings(graph)) == {"stem", "depthwise", "pointwise", "total", "mean", "y"}
    assert {v.type.element for v in graph.constants() if len(v.type.shape) > 1} == {ElementType.BFLOAT16}


def test_the_report_says_which_rule_and_which_type() -> None:
    report = residual(("y", "float16"), ("stem", "bfloat16")).report
    chosen = {node.reason: node.dtype for node in report.float_nodes}
    wanted = {"float16 by rule 1 (name y)": "float16", "bfloat16 by rule 2 (name stem)": "bfloat16"}
    assert chosen == wanted
    assert "2 in float (1 bfloat16, 1 float16)" in report.summary()
    assert any("w3 rounded to float16" in e.what and not e.exact for e in report.log)


def test_a_later_rule_and_keep_float_are_stronger() -> None:
    assert not roundings(residual(("y", "float16"), ("y", "int8")).graph)
    kept = residual(("y", "float16"), keep_float=("y",))
    assert not roundings(kept.graph) and kept.report.float_nodes[0].dtype == "float32"


def test_movement_of_rounded_elements_is_not_rounded_again() -> None:
    chosen = ("y|moved|padded", "bfloat16")
    assert roundings(unquantized(chosen).graph) == {"y": "bfloat16"}
    assert roundings(unquantized(chosen, pad=0.1).graph) == {"y": "bfloat16", "padded": "bfloat16"}
    other = roundings(unquantized(("y", "float16"), ("moved", "bfloat16")).graph)
    assert other == {"y": "float16", "moved": "bfloat16"}


def test_an_operator_without_an_int8_form_is_rounded_too() -> None:
    assert roundings(unquantized(("p", "float16")).graph) == {"p": "float16"}


def test_weights_beyond_float16_are_refused_with_a_way_out() -> None:
    with pytest.raises(UnsupportedError, match="24 of its weights are beyond float16.*choose bfloat16"):
        unquantized(("y", "float16"), weight=1e5)
    assert roundings(unquantized(("y", "bfloat16"), weight=1e5).graph) == {"y": "bfloat16"}


def test_graphs_with_weights_of_16_bits_print_and_parse() -> None:
    graph = residual(("pointwise", "float16"), ("y", "bfloat16")).graph
    text = print_graph(graph)
    assert "f16<8 x 8 x 1 x 1>" in text and '{element="bfloat16"}' in text
    again = parse_graph(text, constant_data(graph))
    verify_graph(again, "parsed")
    assert print_graph(again) == text
    small = GraphBuilder("small")
    w = small.constant("w", np.array([[0x3FC0, 0x8000]], np.uint16).view(ElementType.BFLOAT16.dtype))
    tiny = small.finish(small.node(Gemm(), small.input("x", float_type(1, 1)), w, name="y"))
    text = print_graph(tiny)
    assert "bf16<1 x 2> = constant {1.5, -0.0}" in text and print_graph(parse_graph(text)) == text


def test_only_weights_are_of_16_bits() -> None:
    b = GraphBuilder("g")
    half = b.constant("c", np.zeros((1, 4), np.float16))
    with pytest.raises(VerificationError, match="only constant weights"):
        verify_graph(b.finish(b.node(Softmax(axis=1), half, name="p")), "test")
