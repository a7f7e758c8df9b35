"""Graphs as pictures, in the DOT language of Graphviz."""

from __future__ import annotations

from qglow.core.text import format_attributes, quote
from qglow.graph.graph import Graph, Node, Value

_FLOAT_COLOUR = "#dfe8f5"
_INT8_COLOUR = "#d9f2d9"


def to_dot(graph: Graph) -> str:
    """A `digraph` of nodes, edges labelled with types; small constants are left out.

    Nodes with an int8 result are green, others blue.
    """
    lines = [
        f"digraph {quote(graph.name)} {{",
        '  node [shape=box, style="rounded,filled", fontname="Helvetica"];',
    ]
    for value in graph.inputs:
        lines.append(f"  {_place(value)} [label={quote(f'{value.name}')}, shape=oval, fillcolor=white];")
    for node in graph.nodes:
        lines.append(f"  {_node_id(node)} [label={_label(node)}, fillcolor={quote(_colour(node))}];")
        lines += [f"  {line}" for line in _edges(node)]
    for index, value in enumerate(graph.outputs):
        end = quote(f"out {index}")
        lines.append(f"  {end} [label={quote(value.name)}, shape=oval, fillcolor=white];")
        if not value.is_constant:
            lines.append(f"  {_place(value)} -> {end} [label={quote(str(value.type))}];")
    return "\n".join([*lines, "}"]) + "\n"


def _edges(node: Node) -> list[str]:
    return [
        f"{_place(value)} -> {_node_id(node)} [label={quote(str(value.type))}];"
        for value in node.inputs
        if value is not None and not value.is_constant
    ]


def _place(value: Value) -> str:
    """Identifier in DOT of a value's origin: its node, or the input."""
    return quote(f"in {value.name}") if value.producer is None else _node_id(value.producer)


def _node_id(node: Node) -> str:
    return quote(f"node {node.name}")


def _label(node: Node) -> str:
    weights = [str(v.type) for v in node.inputs if v is not None and v.is_constant and len(v.type.shape) > 1]
    attributes = format_attributes(node.operator)
    return quote("\n".join(part for part in (node.operator.name, node.name, *weights, attributes) if part))


def _colour(node: Node) -> str:
    return _INT8_COLOUR if any(v.type.is_quantized for v in node.outputs) else _FLOAT_COLOUR
