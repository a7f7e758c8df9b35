"""Rules of a recipe: which nodes and values they mean, and what they do to the int8 graph."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from qglow.core.errors import UsageError
from qglow.core.types import Quantization
from qglow.graph.graph import Graph, Node
from qglow.numerics.schema import Schema
from qglow.quantization.choices import Choices
from qglow.quantization.pipeline import quantize
from qglow.recipe import Match, Rule
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe
from tests.unit.profiling.networks import profile_of, residual_network

PLAIN = Recipe(calibration=Calibration("minmax"), equalize=False, correct_bias=False)


def under(*rules: Rule, strict: bool = False) -> Recipe:
    return replace(PLAIN, rules=rules, strict=strict)


def fitted(graph: Graph, match: Match) -> set[str]:
    """Results of the nodes that a rule means."""
    choices = Choices.of(graph, under(Rule(match, dtype="float")))
    return {node.output.name for node in graph.nodes if choices.of_node(node).kept_float}


def named(graph: Graph, name: str) -> Node:
    return next(node for node in graph.nodes if name in (node.name, node.output.name))


def parameters(graph: Graph, name: str) -> Quantization:
    quantization = named(graph, name).output.type.quantization
    assert quantization is not None
    return quantization


def test_names_are_those_of_nodes_and_of_their_results() -> None:
    graph = residual_network()
    node = named(graph, "pointwise")
    assert fitted(graph, Match(name="point.*")) == {"pointwise"}
    assert fitted(graph, Match(name="point")) == set()
    assert fitted(graph, Match(name=node.name)) == {"pointwise"}


def test_operators_and_names_have_to_hold_together() -> None:
    graph = residual_network()
    convolutions = {node.output.name for node in graph.nodes if node.operator.name == "Conv"}
    assert fitted(graph, Match(operator="Conv")) == convolutions
    assert fitted(graph, Match(operator="Conv", name="stem")) == {"stem"}
    assert fitted(graph, Match(operator="Gemm", name="stem")) == set()


def test_a_subgraph_lies_between_two_values() -> None:
    graph = residual_network()
    nodes = [node.output.name for node in graph.nodes]
    first, last = graph.inputs[0].name, graph.outputs[0].name
    assert fitted(graph, Match(start=first, end=last)) == set(nodes)
    middle = named(graph, "stem").output.name
    assert fitted(graph, Match(start=middle)) == set(nodes) - fitted(graph, Match(end=middle))
    assert fitted(graph, Match(end=middle)) == {"stem"}
    assert fitted(graph, Match(start=last)) == set()


def test_later_rules_win_and_leave_what_they_do_not_mention() -> None:
    graph = residual_network()
    everything = Match(name=".*")
    choices = Choices.of(
        graph,
        under(
            Rule(everything, dtype="float", schema="symmetric", granularity="tensor"),
            Rule(Match(name="stem"), dtype="int8", calibration=Calibration("mse")),
        ),
    )
    stem, other = (choices.of_node(named(graph, name)) for name in ("stem", "pointwise"))
    assert not stem.kept_float and other.kept_float == "rule 1 (name .*)"
    assert (stem.schema, str(stem.calibration), stem.per_tensor) == (Schema.symmetric, "mse", True)
    assert (stem.rules, other.rules) == ((1, 2), (1,))
    assert choices.values[graph.inputs[0].name].schema is Schema.symmetric


def test_float_nodes_say_which_rule_keeps_them() -> None:
    found = quantize(residual_network(), profile_of(), under(Rule(Match(name="pointwise"), dtype="float")))
    reasons = {node.name: node.reason for node in found.report.float_nodes}
    assert reasons[named(residual_network(), "pointwise").name] == "kept by rule 1 (name pointwise)"


def test_schema_and_granularity_hold_for_the_nodes_that_are_meant_only() -> None:
    rule = Rule(Match(name="stem"), schema="symmetric_with_power2_scale", granularity="tensor")
    plain = quantize(residual_network(), profile_of(), PLAIN)
    found = quantize(residual_network(), profile_of(), under(rule))
    scale = parameters(found.graph, "stem").scale
    assert math.frexp(scale)[0] == 0.5 and parameters(found.graph, "stem").zero_point == 0
    assert parameters(found.graph, "stem") != parameters(plain.graph, "stem")
    per_tensor = {
        name: named(found.graph, name).inputs[1].type.quantization.axis is None  # type: ignore[union-attr]
        for name in ("stem", "pointwise")
    }
    assert per_tensor == {"stem": True, "pointwise": False}


def test_calibration_holds_for_one_value_only() -> None:
    rule = Rule(Match(name="stem"), calibration=Calibration("percentile", 90.0))
    plain = {t.value: t for t in quantize(residual_network(), profile_of(), PLAIN).report.tensors}
    found = {t.value: t for t in quantize(residual_network(), profile_of(), under(rule)).report.tensors}
    value = named(residual_network(), "stem").output.name
    assert found[value].calibration == "percentile:90.0" and found[value].clipped > plain[value].clipped
    assert {name for name in plain if plain[name].scale != found[name].scale} == {value}


def test_a_rule_that_fits_nothing_is_a_warning_and_with_strict_an_error() -> None:
    rule = Rule(Match(name="pointwize"), dtype="float")
    found = quantize(residual_network(), profile_of(), under(rule))
    assert found.report.warnings == ("rule 1 of the recipe (name pointwize) fits no node or input",)
    with pytest.raises(UsageError, match="rule 1 of the recipe .* fits no node"):
        quantize(residual_network(), profile_of(), under(rule, strict=True))


def test_values_under_different_schemas_do_not_share_a_range() -> None:
    graph = residual_network()
    value = graph.inputs[0].name
    rule = Rule(Match(name=value), schema="symmetric")
    tensors = {t.value: t for t in quantize(graph, profile_of(), under(rule)).report.tensors}
    assert tensors[value].schema == "symmetric" and tensors[value].zero_point == 0


def test_elements_that_rounding_moves_as_far_are_not_called_clipped() -> None:
    """Zero has an integer of its own: a range shifts by up to half a step, and an end lies outside."""
    graph = residual_network()
    found = {t.value: t for t in quantize(graph, profile_of(), PLAIN).report.tensors}
    beyond = [t for t in found.values() if t.counts and (t.seen_high > t.high or t.seen_low < t.low)]
    assert beyond and not any(t.clipped for t in found.values())
