"""Choices between operands: one instruction each."""

from __future__ import annotations

from qglow.graph.graph import Node
from qglow.graph.ops import selection as graph
from qglow.instructions.ops import selection as instructions
from qglow.lowering.context import Lowering
from qglow.lowering.elementwise import lower_elementwise
from qglow.lowering.rules import lowers


@lowers(graph.Max)
def lower_max(lowering: Lowering, node: Node, operator: graph.Max) -> None:
    """Lower to one elementmax."""
    lower_elementwise(lowering, node, instructions.ElementMax())


@lowers(graph.Min)
def lower_min(lowering: Lowering, node: Node, operator: graph.Min) -> None:
    """Lower to one elementmin."""
    lower_elementwise(lowering, node, instructions.ElementMin())


@lowers(graph.Where)
def lower_where(lowering: Lowering, node: Node, operator: graph.Where) -> None:
    """Lower to one select."""
    lower_elementwise(lowering, node, instructions.Select())
