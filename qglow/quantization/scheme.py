"""Policy of quantization by kind of network: what each node gets before the rules of a recipe.

Convolutional networks: whatever can be int8 is. Transformers: products with constant weights are int8, and
what lies between them stays float, where int8 costs accuracy and saves no time. The input of a product is
int8, int16 behind a gate: the product of two computed values has a range that int8 cannot hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.rewriting import operand
from qglow.quantization.attention import is_gate
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


@dataclass(frozen=True, slots=True)
class Treatment:
    """Choices for a node in an attention region: why it stays float, or "", and whether it is int16.

    by_rows: whether the table that it looks up is int8 with a scale for each row.
    """

    reason: str = ""
    wide: bool = False
    by_rows: bool = False


def treatments(graph: Graph, recipe: Recipe) -> Mapping[str, Treatment]:
    """Return what the recipe's scheme wants of nodes in attention regions, by name; nothing of all others.

    `assert_all_quantized` leaves `auto` no float nodes to choose, and `dynamic` and `weights` nothing that is
    calibrated.
    """
    if recipe.dynamic or recipe.weights is not None:
        return {}
    if recipe.scheme == "transformer":
        return _of_region(graph, whole_region(graph))
    if recipe.scheme == "cnn" or recipe.assert_all_quantized:
        return {}
    return _of_region(graph, attention_region(graph))


def _of_region(graph: Graph, region: AttentionRegion) -> dict[str, Treatment]:
    moved = _moved_for_products(graph, region)
    found = {product.name: Treatment() for product in region.products}
    for node, role in region.roles.items():
        found[node.name] = Treatment() if node in moved else Treatment(role.reason)
    least = LEAST_SHARE * sum(value.type.size for value in graph.constants())
    for node in graph.nodes:
        if _looks_up(node) and any(user in region.roles for user in node.output.users()):
            large = operand(node).type.size >= least
            found[node.name] = Treatment(by_rows=True) if large else Treatment(SMALL_TABLE)
    for product in region.products:
        for node in _behind_gate(product, region, moved):
            found[node.name] = Treatment(wide=True)
    return found


def _moved_for_products(graph: Graph, region: AttentionRegion) -> set[Node]:
    """Return nodes of the region that move what products with weights alone read.

    In int8 a value that several products read is quantized once.
    """
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if node not in region.roles or node.operator.kept_operand is None or graph.is_output(node.output):
            continue
        users = node.output.users()
        if users and all(user in found or _multiplies(user, node.output) for user in users):
            found.add(node)
    return found


def _multiplies(user: Node, value: Value) -> bool:
    return user.operator.accumulate is not None and user.inputs[0] is value and user.inputs.count(value) == 1


def _looks_up(node: Node) -> bool:
    """Whether a node looks up rows of a constant table of floats, as an embedding does."""
    table = node.inputs[0] if node.operator.looks_up_rows else None
    return table is not None and table.is_constant and table.type.is_float and not _is_given(node.inputs[1])


def _is_given(value: Value | None) -> bool:
    return value is None or value.is_constant


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
