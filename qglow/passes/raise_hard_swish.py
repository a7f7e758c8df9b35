"""x clip(x + 3, 0, 6) / 6, written out, as one HardSwish, whose int8 form is one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul
from qglow.graph.ops.functions import HardSwish
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    change,
    operand,
    private,
    producer_of,
    remove_unread,
)
from qglow.passes.matching import holds


@dataclass(frozen=True)
class RaiseHardSwish(RewritePass):
    """Raise the product, whether it or its gate is divided by 6 or multiplied by 1/6."""

    name: ClassVar[str] = "raise-hard-swish"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Raise the pattern that ends in this node."""
        found = _division_last(node) or _division_inside(node)
        if found is None:
            return None
        x, parts = found
        refusals = [private(graph, part.output) for part in parts]
        refusal = next((r for r in refusals if r is not None), None)
        if refusal is not None:
            return refusal
        if x.type != node.output.type or not x.type.is_float:
            return Refused(f"%{x.name} is broadcast or not float")
        change(node, HardSwish(), [x])
        for part in parts:
            remove_unread(graph, part)
        return f"{len(parts) + 1} nodes become HardSwish"


Found = tuple[Value, list[Node]]


def _division_last(node: Node) -> Found | None:
    """(x * gate) / 6."""
    value = _sixth(node)
    product = None if value is None else producer_of(value, Mul)
    if product is None or product.operator != Mul():
        return None
    for x, gate in ((operand(product, 0), operand(product, 1)), (operand(product, 1), operand(product, 0))):
        parts = _gate(gate, x)
        if parts is not None:
            return x, [product, *parts]
    return None


def _division_inside(node: Node) -> Found | None:
    """x * (gate / 6)."""
    if node.operator != Mul():
        return None
    for x, value in ((operand(node, 0), operand(node, 1)), (operand(node, 1), operand(node, 0))):
        divided = value.producer
        gate = None if divided is None else _sixth(divided)
        parts = None if gate is None else _gate(gate, x)
        if divided is not None and parts is not None:
            return x, [divided, *parts]
    return None


def _sixth(node: Node) -> Value | None:
    """v of v / 6 or v * 1/6."""
    if node.operator == Div() and holds(operand(node, 1), 6.0):
        return operand(node, 0)
    if node.operator != Mul():
        return None
    lhs, rhs = operand(node, 0), operand(node, 1)
    if holds(rhs, 1 / 6):
        return lhs
    return rhs if holds(lhs, 1 / 6) else None


def _gate(value: Value, x: Value) -> list[Node] | None:
    """The Clip and the Add of clip(x + 3, 0, 6)."""
    clip = producer_of(value, Clip)
    if clip is None or clip.operator != Clip(lo=0.0, hi=6.0):
        return None
    add = producer_of(operand(clip, 0), Add)
    if add is None or add.operator != Add():
        return None
    lhs, rhs = operand(add, 0), operand(add, 1)
    fits = (lhs is x and holds(rhs, 3.0)) or (rhs is x and holds(lhs, 3.0))
    return [clip, add] if fits else None
