"""Placement of nodes: those that can run in int8, and reasons why the others cannot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from qglow.core.errors import UsageError
from qglow.display.lines import near
from qglow.graph.graph import Graph, Node, Value, nested
from qglow.graph.operator import Accumulate, KeepFloat, Policy, Products, Recur, Table
from qglow.numerics.pool import MOST_WIDE_TAPS
from qglow.quantization.blocks import unfit_for_blocks
from qglow.quantization.choices import Choice, Choices, names_of
from qglow.quantization.dynamic import unfit_for_rows
from qglow.quantization.products import unfit_product
from qglow.quantization.states import unfit_states
from qglow.recipe.choices import BlockFormat
from qglow.recipe.schema import Recipe, pattern_fits

_NO_WIDE_FORM: dict[type[Policy], str] = {
    Table: "a table of 65536 entries would not pay",
    Products: "both of its operands are computed",
    Recur: "its products are those of its own states",
}

MEASURED = "its rows are scaled while the model runs"
"""Reason why a dynamic product takes no part in what is decided from a profile."""
KEPT = "kept by "
"""Beginning of the reason of a node that the recipe keeps float."""

FloatReasons = dict[Node, str]
"""Nodes that stay float, each with the reason."""


@dataclass
class Overruled:
    """Reasons of suitability and cost that a rule with dtype int8 overrules; those in `fixed` it cannot.

    stated: for each node, by name, that is int8 by such a rule alone: the rule and the reason against it.
    """

    choices: Choices
    fixed: frozenset[Node]
    stated: dict[str, str] = field(default_factory=dict)

    def take_from(self, reasons: FloatReasons) -> None:
        """Remove the overruled nodes."""
        for node in [node for node in reasons if node not in self.fixed]:
            rule = self.choices.of_node(node).int8
            if rule:
                self.stated.setdefault(node.name, f"{rule}; it would be float: {reasons[node]}")
                del reasons[node]


def data_operands(node: Node) -> tuple[int, ...]:
    """Indices of the operands that are int8 activations in the node's int8 form."""
    policy = node.operator.accumulate
    if policy is not None:
        return (node.operator.operands.index(policy.x),)
    names = node.operator.operands
    kept = [i for i, name in enumerate(names) if name.rstrip("?*") in node.operator.plain_operands]
    return tuple(i for i in range(len(node.inputs)) if i not in kept)


def handles_reals(node: Node) -> bool:
    """Whether a node computes with float values at all: integers and indices do not count."""
    if node.operator.reads_integers:
        return False
    values = [v for v in [*node.inputs, *node.outputs] if v is not None]
    return any(v.type.is_float for v in values) and bool(node.outputs)


def reads_wide(node: Node) -> bool:
    """Whether the node's integer form takes int16 operands, and may give an int16 result."""
    if type(node.operator.policy) in _NO_WIDE_FORM:
        return False
    return node.operator.summed_elements(node.input_types()) <= MOST_WIDE_TAPS


def no_wide_form(node: Node) -> str:
    """Reason why a node for which `reads_wide` is false has no int16 form."""
    why = _NO_WIDE_FORM.get(type(node.operator.policy), "its sums could be beyond int32")
    return f"it has no int16 form: {why}"


def float_reasons(graph: Graph, recipe: Recipe, choices: Choices | None = None) -> FloatReasons:
    """Every node that cannot or shall not run in int8, with the reason. Costs are not considered.

    `choices` are those of the recipe's rules.
    """
    choices = choices or Choices.of(graph, recipe)
    measured = _measured(graph, recipe, choices)
    reasons: FloatReasons = {}
    for node in graph.nodes:
        if not handles_reals(node):
            continue
        pattern = recipe.keeps_float(choices.names_of(node), node.operator.name)
        choice = choices.of_node(node)
        reason = _reason(node, pattern, choice)
        if reason is not None:
            by_rule = node in measured and reason.startswith(KEPT)
            reasons[node] = f"{reason}: products that read it measure its rows" if by_rule else reason
    return reasons


def _measured(graph: Graph, recipe: Recipe, choices: Choices) -> set[Node]:
    """Nodes that a rule keeps float, and whose results reach products that measure their rows alone."""
    products = dynamic_products(graph, recipe, choices)
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        readers = {user for value in node.outputs for user, _ in value.uses}
        kept = choices.of_node(node).is_float32 and not any(value in graph.outputs for value in node.outputs)
        if kept and readers and all(user in products or user in found for user in readers):
            found.add(node)
    return found


def chosen_half(node: Node, pattern: str | None, choice: Choice) -> str:
    """Return the 16-bit float type that is chosen for a node, or "".

    Conversions, nodes without float results and nodes that `pattern` keeps float32 have none.
    """
    converts = node.operator.conversion is not None or node.operator.rounds_to is not None
    if pattern is not None or converts or not any(value.type.is_float for value in node.outputs):
        return ""
    return choice.half


def dynamic_products(graph: Graph, recipe: Recipe, choices: Choices) -> dict[Node, BlockFormat | None]:
    """Return the products whose rows are scaled while the model runs, in the order of the graph.

    Each has the format that its weights get, if they get one.
    """
    return {
        node: choice.weights
        for node in graph.nodes
        if (choice := choices.of_node(node)).dynamic
        and not recipe.keeps_float(choices.names_of(node), node.operator.name)
        and unfit_for_rows(node, choice.weights) is None
    }


def block_products(graph: Graph, recipe: Recipe, choices: Choices) -> dict[Node, BlockFormat]:
    """Return the products of which weights alone are quantized, with the format, in the graph's order."""
    return {
        node: chosen
        for node in graph.nodes
        if (chosen := choices.of_node(node).weights) is not None
        and not choices.of_node(node).dynamic
        and not recipe.keeps_float(choices.names_of(node), node.operator.name)
        and unfit_for_blocks(node, chosen, choices.of_node(node).stated) is None
    }


def _reason(node: Node, pattern: str | None, choice: Choice) -> str | None:
    policy = node.operator.policy
    if node.operator.conversion is not None:
        return "it converts between float and int8 in the model itself"
    if chosen_half(node, pattern, choice):
        return f"{choice.half} by {choice.kept_float}"
    if isinstance(policy, KeepFloat) and (node.operator.weight_blocks is None or not choice.dynamic):
        return policy.reason
    if pattern is not None:
        return f"{KEPT}keep_float {pattern}"
    chosen = _chosen_reason(node, choice)
    if chosen is not None:
        return chosen
    if choice.wide and not reads_wide(node):
        return no_wide_form(node)
    if isinstance(policy, Recur):
        return unfit_states(node, policy)
    if len(node.outputs) != 1 or not node.output.type.is_float:
        return "its result is not one float tensor"
    if isinstance(policy, Accumulate):
        return _unfit_weights(node, policy)
    if isinstance(policy, Products):
        return unfit_product(node)
    if node.operator.constants_axis(node.input_types()) is not None:
        return _computed_factors(node)
    if node.operator.added_value:
        return f"it pads with {node.operator.added_value:g}, which int8 of its input may not hold"
    if all(v is None or v.is_constant for v in node.inputs):
        return "all its inputs are constants"
    operands = [v for i, v in enumerate(node.inputs) if i in data_operands(node)]
    if any(v is None or not v.type.is_float for v in operands):
        return "an input is not float"
    return next((fault for v in operands if (fault := _unfit_constant(v)) is not None), None)


def _unfit_constant(value: Value | None) -> str | None:
    """Reason why a constant has no int8 form; None if it has one, or is computed."""
    if value is None or value.data is None or np.all(np.isfinite(value.data)):
        return None
    return f"its operand '{value.name}' holds NaN or infinities"


def _chosen_reason(node: Node, choice: Choice) -> str | None:
    """Reason why the recipe, by its rules or its scheme, keeps a node float; None if it does not."""
    if choice.dynamic:
        return f"float by {choice.kept_float}: {unfit_for_rows(node, choice.weights) or MEASURED}"
    if choice.weights is not None:
        fault = unfit_for_blocks(node, choice.weights, choice.stated)
        return f"float by {choice.kept_float}: {fault or f'its weights are {choice.weights}'}"
    if choice.kept_float:
        return f"{KEPT}{choice.kept_float}"
    return choice.policy or None


def _computed_factors(node: Node) -> str | None:
    """Reason why a node's channel factors and terms are no constants; None if they are."""
    names = node.operator.plain_operands
    return None if _constants(node, names) else f"its {' or '.join(names)} is computed by the graph"


def _unfit_weights(node: Node, policy: Accumulate) -> str | None:
    if not _constants(node, (policy.w, policy.bias)):
        return "its weights or bias are computed by the graph"
    for name in (policy.w, policy.bias):
        value = node.operand(name)
        if value is not None and value.data is not None and not np.all(np.isfinite(value.data)):
            return f"its {name} holds NaN or infinities"
    return None


def _constants(node: Node, names: tuple[str, ...]) -> bool:
    operands: list[Value | None] = [node.operand(name) for name in names]
    return all(v is None or v.is_constant for v in operands)


def check_patterns(graph: Graph, recipe: Recipe) -> None:
    """Raise UsageError for a pattern of keep_float that matches nothing: probably a typing error."""
    found = ((path, node) for path, part in nested(graph) for node in part.nodes)
    nodes = [(names_of(node, path), node.operator.name) for path, node in found]
    for pattern in recipe.keep_float:
        if any(pattern_fits(pattern, names, operator) for names, operator in nodes):
            continue
        if pattern.startswith("op:"):
            operators = ", ".join(sorted({operator for _, operator in nodes})) or "none"
            hint = (
                f"; its graph, in which operators of the file may have become others, has {operators} "
                "(qglow inspect shows it)"
            )
        else:
            hint = near(pattern, [name for names, _ in nodes for name in names])
        raise UsageError(
            f"keep_float {pattern}: no node, value or operator of the model is called that{hint}",
            field="keep_float",
        )
