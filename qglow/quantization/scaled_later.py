"""Nodes whose integers get their scales from later ones: sums of measured rows, and rows of tied tables."""

from __future__ import annotations

from qglow.core.types import Array
from qglow.graph.graph import Node, Value
from qglow.quantization.dynamic import multiplies_scaled_rows, real_result, scales_of_columns
from qglow.quantization.tied_tables import ScaledLookup, looks_up_integers


def is_scaled_later(node: Node) -> bool:
    """Whether the result of a node is plain integers, or sums of such, that stand for no reals themselves."""
    return multiplies_scaled_rows(node) or looks_up_integers(node)


def scaled_result(node: Node) -> Value | None:
    """The reals that the result of such a node becomes; None where other nodes than ours make them."""
    if multiplies_scaled_rows(node):
        return real_result(node)
    found = ScaledLookup.of(node)
    return None if found is None else found.result


def scales_of_rows(node: Node) -> Value | None:
    """Scales that such a node's integers are multiplied by, if looked up too; the float graph has others."""
    found = ScaledLookup.of(node) if looks_up_integers(node) else None
    return None if found is None else found.scales


def weight_scales(node: Node) -> Array | None:
    """float32 scales of the integer weights of such a node, for each column or row; None where unknown."""
    if multiplies_scaled_rows(node):
        return scales_of_columns(node)
    found = ScaledLookup.of(node)
    return None if found is None else found.column
