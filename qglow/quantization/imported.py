"""Quantization of a graph that brings its own parameters, to int8 or int16: no profile is needed.

Quantize and Dequantize nodes of the model give the parameters that a profile gives otherwise; rewriting
and the exact part of folding are the same. The model's parameters are kept: nothing is equalized or
corrected, no rescale is folded away but that of channels with scales of their own, and a node whose operands
or result have no parameters stays float, as the model defines it. So int8 regions are the model's own,
whatever they cost. Bodies of branches and loops are graphs of their own, between values that stay float.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.errors import UsageError
from qglow.core.passes import PassLog, Pipeline
from qglow.core.types import Quantization
from qglow.graph.graph import Graph, Node, mark_unsigned, unsigned_interface
from qglow.graph.operator import Accumulate
from qglow.graph.rewriting import dequantized_constant, operand
from qglow.graph.verifier import verify_graph
from qglow.numerics.quantize import dequantize
from qglow.numerics.weights import bias_scales
from qglow.passes.dequantize_constants import DequantizeConstants
from qglow.passes.eliminate_dead_nodes import EliminateDeadNodes
from qglow.quantization.assign import Assignment
from qglow.quantization.choices import Choices
from qglow.quantization.float_form import float_form
from qglow.quantization.folding.cancel_conversions import CancelConversions
from qglow.quantization.folding.fuse_clamp import FuseClamp
from qglow.quantization.folding.read_integers import ReadIntegers
from qglow.quantization.folding.sink_rescale import SinkRescale
from qglow.quantization.given import (
    Given,
    carries_parameters,
    given_parameters,
    lacking,
    take_weights,
    unfit_sums,
)
from qglow.quantization.given_scales import ScalesIntoWeights
from qglow.quantization.half import round_chosen, store_rounded
from qglow.quantization.interface import Interface, make_interface_int8
from qglow.quantization.pipeline import QuantizedGraph, choices_of, not_quantized
from qglow.quantization.placement import FloatReasons, check_patterns, float_reasons, handles_reals
from qglow.quantization.products import product_margins
from qglow.quantization.regions import region_paths, region_recipe, with_regions
from qglow.quantization.report import QuantizationReport, constant_bytes, make_report
from qglow.quantization.rewrite import rewrite
from qglow.quantization.weights import FloatWeights, integers, set_integers
from qglow.recipe.schema import Recipe

EXACT_FOLDING: Pipeline[Graph] = Pipeline((CancelConversions(), SinkRescale(), ReadIntegers()))
"""Passes over the int8 graph: they remove conversions that only undo each other."""


def quantize_imported(
    graph: Graph, recipe: Recipe | None = None, log: PassLog | None = None
) -> QuantizedGraph:
    """The int8 form of a canonical graph with its own Quantize and Dequantize; the graph stays as it is.

    Of the recipe, what keeps nodes float, io and assert_all_quantized apply. Raises UsageError for a model
    that quantizes no activation, for a pattern that matches nothing and where an int8 io is not possible,
    UnsupportedError under assert_all_quantized if nodes stay float.
    """
    if not carries_parameters(graph):
        raise UsageError("the model does not bring parameters of its own; profile it, and name the profile")
    # The model says itself what is int8.
    recipe = replace(recipe or Recipe(), equalize=False, correct_bias=False, scheme="cnn")
    return _Import(graph, recipe, log or PassLog()).run()


@dataclass
class _Import:
    """One import. path: what precedes names where the graph is a region; patterns need name nothing there."""

    given_graph: Graph
    recipe: Recipe
    log: PassLog
    path: str = ""

    def run(self) -> QuantizedGraph:
        """The int8 form of the graph."""
        graph, recipe, log = self.given_graph.copy(), self.recipe, self.log
        if not self.path:
            check_patterns(graph, recipe)
        choices = choices_of(graph, recipe, self.path)
        bodies = self._bodies(graph, choices)
        Pipeline((ScalesIntoWeights(),)).run(graph, verify_graph, log)
        log.pass_name = "assign"
        weights = take_weights(graph, log)
        constants = _constant_parameters(graph)
        Pipeline((DequantizeConstants(), FuseClamp())).run(graph, verify_graph, log)
        log.pass_name = "assign"
        assignment = given_parameters(graph)
        assignment |= {value: constants[value.name] for value in graph.constants() if value.name in constants}
        sources = _sources(graph, weights)
        reasons = float_reasons(graph, recipe, choices)
        _add_lacking(graph, reasons, assignment, weights, sources, recipe)
        int8 = [n for n in graph.nodes if n not in reasons and handles_reals(n)]
        kept = {node: why for node, why in reasons.items() if not _converts(node)}
        if recipe.assert_all_quantized and kept:
            raise not_quantized(kept)
        sums = [node for node in int8 if node.operator.accumulate is not None]
        for node in sums:
            _check_bias(node, sources[node.name], assignment, log)
        source = float_form(graph)
        interface = _interface(graph, assignment) if recipe.io == "int8" else {}
        halves = round_chosen(graph, recipe, choices, log)
        halves |= store_rounded(graph)
        rewrite(graph, int8, assignment, sources, recipe.per_tensor)
        make_interface_int8(graph, interface)
        verify_graph(graph, "after rewriting to int8")
        EXACT_FOLDING.run(graph, verify_graph, log)
        EliminateDeadNodes().run(graph, log)
        margins = product_margins(int8)
        margins |= {n.name: set_integers(graph, n, sources[n.name], recipe.per_tensor) for n in sums}
        regions = _give_bodies(graph, source, bodies)
        verify_graph(graph, "after the final weights")
        mark_unsigned(graph, unsigned_interface(self.given_graph))
        by_name = {node.name: reason for node, reason in reasons.items()}
        bytes_before = constant_bytes(source)
        folding = str(EXACT_FOLDING)
        report = make_report(graph, by_name, margins, bytes_before, folding, log, halves)
        report = with_regions(replace(report, warnings=choices.unmatched, given=True), regions)
        return QuantizedGraph(graph, source, report, recipe)

    def _bodies(self, graph: Graph, choices: Choices) -> dict[str, list[QuantizedGraph | None]]:
        """The int8 forms of what nodes run, by the names of nodes; None for a body without parameters.

        Taken from the graph as the model has it: passes over a graph go into bodies.
        """
        found = {}
        for node in graph.nodes:
            kept = self.recipe.keeps_float(choices.names_of(node), node.operator.name)
            if kept is not None or not any(map(carries_parameters, node.operator.regions)):
                continue
            bodies = zip(region_paths(node), node.operator.regions, strict=True)
            recipe = region_recipe(self.recipe)
            found[node.name] = [
                _Import(body, recipe, PassLog(), self.path + path).run() if carries_parameters(body) else None
                for path, body in bodies
            ]
        return found


def _give_bodies(
    graph: Graph, source: Graph, bodies: Mapping[str, list[QuantizedGraph | None]]
) -> list[tuple[str, QuantizationReport]]:
    """Put bodies into a graph in int8, and into its float form in float; return paths and reports."""
    found = []
    for part in (graph, source):
        for node in part.nodes:
            if node.name not in bodies:
                continue
            pairs = list(zip(bodies[node.name], node.operator.regions, strict=True))
            regions = [
                body if made is None else made.graph if part is graph else made.source for made, body in pairs
            ]
            node.operator = node.operator.with_regions(regions)
    for node in graph.nodes:
        for path, made in zip(region_paths(node), bodies.get(node.name, ()), strict=False):
            if made is not None:
                found.append((path, made.report))
    return found


def _converts(node: Node) -> bool:
    return node.operator.is_border


def _constant_parameters(graph: Graph) -> dict[str, Quantization]:
    """Parameters of the constants that the model dequantizes, by the name of the dequantized value."""
    found = {}
    for node in graph.nodes:
        source = dequantized_constant(node.output) if node.outputs else None
        if source is not None and source.type.quantization is not None:
            found[node.output.name] = source.type.quantization
    return found


def _sources(graph: Graph, weights: Given) -> Mapping[str, FloatWeights]:
    """Weights and biases of the nodes whose weights the model has as integers."""
    return {
        node.name: replace(FloatWeights.of(node), given=weights[node.name])
        for node in graph.nodes
        if node.name in weights and _constant_operands(node)
    }


def _constant_operands(node: Node) -> bool:
    policy = node.operator.policy
    assert isinstance(policy, Accumulate)
    return all(v is None or v.is_constant for v in (node.operand(policy.w), node.operand(policy.bias)))


def _add_lacking(
    graph: Graph,
    reasons: FloatReasons,
    assignment: Assignment,
    weights: Given,
    sources: Mapping[str, FloatWeights],
    recipe: Recipe,
) -> None:
    """Add the nodes to `reasons` for which the model has no parameters, or none that int8 kernels can use."""
    for node in graph.nodes:
        if node in reasons or not handles_reals(node):
            continue
        reason = lacking(node, assignment, weights)
        if reason is None and node.operator.accumulate is not None:
            x, y = assignment[operand(node)], assignment.get(node.output)
            reason = unfit_sums(sources[node.name], x, y, recipe.per_tensor)
        if reason is not None:
            reasons[node] = reason


def _check_bias(node: Node, source: FloatWeights, assignment: Assignment, log: PassLog) -> None:
    """Log a bias that is rounded, because the model has it in float or at another scale than its sums."""
    made = integers(source, assignment[operand(node)].scale, False)
    scales = bias_scales(assignment[operand(node)].scale, made.scales)
    if not np.array_equal(dequantize(made.bias, scales, np.zeros(scales.size), 0), source.bias):
        log.applied(node.name, "bias rounded to the scale of the sums, s_x * s_w", exact=False)


def _interface(graph: Graph, assignment: Assignment) -> Interface:
    """Parameters of the float inputs and outputs. Raises UsageError if the model has none."""
    found = {}
    for value in (*graph.inputs, *graph.outputs):
        if not value.type.is_float:
            continue
        if value not in assignment:
            raise UsageError(f"io int8: the model has no parameters for '{value.name}'", field="io")
        if assignment[value].is_wide:
            raise UsageError(f"io int8: the model has '{value.name}' in int16; leave it float", field="io")
        found[value.name] = assignment[value]
    return found
