"""Groups of nodes that become one instruction, where a target takes several operators together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from qglow.graph.graph import Graph, Node, Value
from qglow.lowering.attention import find_attention
from qglow.lowering.attention_steps import Live
from qglow.lowering.context import Lowering
from qglow.lowering.linear import find_scaled_products
from qglow.lowering.live import LiveAxes
from qglow.lowering.rows import find_quantized_rows
from qglow.lowering.standardize import find_standardized_rows


class Join(Protocol):
    """Nodes that become one instruction, which has their bits."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes that it computes, in their order."""
        ...

    @property
    def place(self) -> Node:
        """The one of the nodes whose place the instruction takes."""
        ...

    def lower(self, lowering: Lowering) -> None:
        """Emit the instruction."""
        ...


def find_joins(graph: Graph, live: Live, places: Mapping[Value, LiveAxes]) -> list[Join]:
    """All joins of a graph; `live` as for `lower`, places: axes of which only the first places matter."""
    return [
        *find_attention(graph, live),
        *find_quantized_rows(graph),
        *find_scaled_products(graph),
        *find_standardized_rows(graph, places),
    ]


def lower_join(lowering: Lowering, join: Join) -> None:
    """Emit the instruction of a join, with all of its nodes as origin."""
    start = len(lowering.program.code)
    join.lower(lowering)
    for instruction in lowering.program.code[start:]:
        if instruction.operation.touches_memory:
            instruction.origin = tuple(node.name for node in join.nodes)
