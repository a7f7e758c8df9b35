"""Policy of quantization by kind of network: what each node gets before the rules of a recipe.

Convolutional networks: whatever can be int8 is. Transformers: products with constant weights are int8, and
what lies between them stays float, where int8 costs accuracy and saves no time. The input of a product is
int8, int16 behind a gate: the product of two computed values has a range that int8 cannot hold. Heads that
do hardly any of the work, such as a classifier of one row behind many tokens, stay float.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.rewriting import operand
from qglow.graph.work import node_multiply_adds
from qglow.quantization.attention import gives_reals, is_gate, looks_up
from qglow.quantization.attention_region import AttentionRegion, attention_region, whole_region
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe

IN_ATTENTION = Calibration("percentile", 99.99)
"""Calibration in attention regions where the recipe states none."""
LEAST_SHARE = 1 / 64
"""Least share of the elements of all constants that a table must have to be int8.

A table of two types of tokens saves nothing, and its rounding is the same in every token.
"""
SMALL_TABLE = "transformer: its table is too small to save anything in int8"
"""Reason why a lookup in such a table stays float."""
HEAD_WORK = 1 / 100
"""Largest share of a model's multiply-adds that the products of small heads have together.

What rounds in them reaches the outputs as it is: floats won 1 to 16 dB there, of trained and drawn models.
"""
HEAD_WEIGHTS = 1 / 16
"""Largest share of the elements of all constants that their weights have together."""
RESULT_WORK = 64
"""Multiply-adds that take about as long as one result of a light node."""
SMALL_HEAD = "transformer: a head with so little work saves nothing in int8"
"""Reason why a product of such a head stays float."""
BEHIND = "transformer: behind the last products of a model int8 saves nothing"
"""Reason why a light node there stays float; counts of tokens, which means divide by, fit no fixed range."""


@dataclass(frozen=True, slots=True)
class Treatment:
    """Choices for a node in an attention region: why it stays float, or "", and whether it is int16.

    by_rows: whether the table that it looks up is int8 with a scale for each row. inside: whether it is in an
    attention region, which sizes do not decide, as they decide what is a small head and what is behind one.
    """

    reason: str = ""
    wide: bool = False
    by_rows: bool = False
    inside: bool = True


def treatments(graph: Graph, recipe: Recipe) -> Mapping[str, Treatment]:
    """Return what the recipe's scheme wants of nodes in attention regions, by name; nothing of all others.

    `assert_all_quantized` leaves `auto` no float nodes to choose; `dynamic` and `weights`, which quantize
    nothing between products, leave small heads alone.
    """
    if recipe.scheme == "cnn" or (recipe.assert_all_quantized and recipe.scheme != "transformer"):
        return {}
    region = whole_region(graph) if recipe.scheme == "transformer" else attention_region(graph)
    if not (region.roles or region.products):
        return {}
    tail = _tail(graph)
    heads = {node for node in tail if node_multiply_adds(node)}
    if recipe.dynamic or recipe.weights is not None:
        return {node.name: Treatment(SMALL_HEAD) for node in heads}
    found = _of_region(graph, region, heads)
    for node in tail:
        if node.name not in found or node in heads:
            reason = SMALL_HEAD if node in heads else BEHIND
            found[node.name] = Treatment(reason, inside=node.name in found)
    return found


def _of_region(graph: Graph, region: AttentionRegion, heads: Collection[Node]) -> dict[str, Treatment]:
    moved = _moved_for_products(graph, region, heads)
    found = {product.name: Treatment() for product in region.products}
    for node, role in region.roles.items():
        found[node.name] = Treatment() if node in moved else Treatment(role.reason)
    least = LEAST_SHARE * sum(value.type.size for value in _weights(graph))
    for node in graph.nodes:
        if looks_up(node) and any(user in region.roles for user in node.output.users()):
            large = operand(node).type.size >= least
            found[node.name] = Treatment(by_rows=True) if large else Treatment(SMALL_TABLE)
    for product in region.products:
        for node in _behind_gate(product, region, moved):
            found[node.name] = Treatment(wide=True)
    return found


def _weights(graph: Graph) -> set[Value]:
    """Return the constants that products and lookups read.

    Others, such as a bias for each pair of positions, may be computed of sizes: a table that is large at one
    length would be small at another.
    """
    return {
        value
        for node in graph.nodes
        for value in (node.inputs[:1] if looks_up(node) else node.inputs)
        if value is not None
        and value.is_constant
        and (looks_up(node) or node.operator.accumulate is not None)
    }


def _tail(graph: Graph) -> list[Node]:
    """Return the small heads of a graph, and nodes of few results that have no other products behind them.

    A product is a small head as long as all products behind it are.
    """
    whole = math.fsum(map(node_multiply_adds, graph.nodes))
    work, weights = HEAD_WORK * whole, HEAD_WEIGHTS * sum(value.type.size for value in graph.constants())
    tail: list[Node] = []
    before: set[Node] = set()
    for node in reversed(graph.nodes):
        own = node_multiply_adds(node)
        stored = sum(v.type.size for v in node.inputs if v is not None and v.is_constant) if own else 0
        is_before = any(user in before for value in node.outputs for user in value.users())
        if is_before or own > work or stored > weights:
            before.add(node)
        elif own or (gives_reals(node) and RESULT_WORK * node.output.type.size <= HEAD_WORK * whole):
            tail.append(node)
            work, weights = work - own, weights - stored
    return tail


def _moved_for_products(graph: Graph, region: AttentionRegion, heads: Collection[Node]) -> set[Node]:
    """Return nodes of the region that move what products with weights, other than `heads`, alone read.

    In int8 a value that several products read is quantized once.
    """
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if node not in region.roles or node.operator.kept_operand is None or graph.is_output(node.output):
            continue
        users = node.output.users()
        if users and all(
            user in found or (user not in heads and _multiplies(user, node.output)) for user in users
        ):
            found.add(node)
    return found


def _multiplies(user: Node, value: Value) -> bool:
    return user.operator.accumulate is not None and user.inputs[0] is value and user.inputs.count(value) == 1


def _behind_gate(product: Node, region: AttentionRegion, moved: set[Node]) -> list[Node]:
    """Return a product with weights that reads the result of a gate, and the data movement between them."""
    chain, value = [product], product.inputs[0]
    while value is not None and value.producer in moved:
        node = value.producer
        assert node is not None and node.operator.kept_operand is not None
        chain.append(node)
        value = node.inputs[node.operator.kept_operand]
    gate = None if value is None else value.producer
    return chain if gate is not None and gate in region.roles and is_gate(gate) else []
