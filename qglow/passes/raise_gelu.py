"""x (1 + erf(x / sqrt 2)) / 2, written out, as one Gelu, whose int8 form is one table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Add, Div, Mul
from qglow.graph.ops.functions import Erf, Gelu
from qglow.graph.rewriting import Outcome, RewritePass, change, operand, private, producer_of, remove_unread

_CLOSE = 1e-5


@dataclass(frozen=True)
class RaiseGelu(RewritePass):
    """Whatever the order in which x, the half and the bracket are multiplied."""

    name: ClassVar[str] = "raise-gelu"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Raise one chain of multiplications that ends here."""
        if node.operator != Mul() or not node.output.type.is_float:
            return None
        factors, inner = _factors(node)
        bracket = next((f for f in factors if _argument(f) is not None), None)
        if bracket is None:
            return None
        x = _argument(bracket)
        halves = [f for f in factors if _is(f, 0.5)]
        others = [f for f in factors if f is not bracket and f not in halves]
        if len(halves) != 1 or others != [x] or x is None:
            return Refused(f"1 + Erf %{bracket.name} is not multiplied by its x and by a half")
        dropped = [*inner, *_bracket_nodes(bracket)]
        refusals = [private(graph, part.output) for part in dropped]
        refusal = next((r for r in refusals if r is not None), None)
        if refusal is not None:
            return refusal
        if x.type != node.output.type:
            return Refused(f"%{x.name} is broadcast")
        change(node, Gelu(), [x])
        for part in dropped:
            remove_unread(graph, part)
        return f"{len(dropped) + 1} nodes become Gelu"


def _factors(node: Node) -> tuple[list[Value], list[Node]]:
    """Operands of a product and, where one is a product itself, its operands and its node."""
    lhs, rhs = operand(node, 0), operand(node, 1)
    for value, other in ((lhs, rhs), (rhs, lhs)):
        inner = producer_of(value, Mul)
        if inner is not None and inner.operator == Mul():
            return [operand(inner, 0), operand(inner, 1), other], [inner]
    return [lhs, rhs], []


def _bracket_nodes(bracket: Value) -> list[Node]:
    """The Add, the Erf and the Div or Mul behind 1 + erf(x / sqrt 2)."""
    add = bracket.producer
    assert add is not None
    erf = next(v.producer for v in (operand(add, 0), operand(add, 1)) if producer_of(v, Erf) is not None)
    assert erf is not None
    scaled = operand(erf, 0).producer
    assert scaled is not None
    return [add, erf, scaled]


def _argument(value: Value) -> Value | None:
    """x of a value that is 1 + erf(x / sqrt 2)."""
    add = producer_of(value, Add)
    if add is None or add.operator != Add():
        return None
    for one, other in ((operand(add, 0), operand(add, 1)), (operand(add, 1), operand(add, 0))):
        erf = producer_of(other, Erf)
        if _is(one, 1.0) and erf is not None:
            return _unscaled(operand(erf, 0))
    return None


def _unscaled(value: Value) -> Value | None:
    """x of x / sqrt 2 or x * sqrt 1/2."""
    node = value.producer
    if node is None:
        return None
    if node.operator == Div() and _is(operand(node, 1), math.sqrt(2.0)):
        return operand(node, 0)
    if node.operator != Mul():
        return None
    lhs, rhs = operand(node, 0), operand(node, 1)
    if _is(rhs, math.sqrt(0.5)):
        return lhs
    return rhs if _is(lhs, math.sqrt(0.5)) else None


def _is(value: Value, wanted: float) -> bool:
    data = value.data
    return data is not None and data.size == 1 and bool(np.all(np.abs(data - wanted) <= _CLOSE * wanted))
