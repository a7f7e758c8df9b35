"""x times the normal distribution function, written out by erf or tanh, as one Gelu: one int8 table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Add, Div, Mul
from qglow.graph.ops.functions import Erf, Gelu, PowerOf, Tanh
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    change,
    enclosed,
    operand,
    producer_of,
    remove_unread,
)
from qglow.passes.matching import holds, is_square, orders

_LINEAR = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715


@dataclass(frozen=True)
class Bracket:
    """The factor 1 + erf(...) or 1 + tanh(...): its x, and its nodes from the last to the first."""

    x: Value
    nodes: list[Node]
    approximate: str


@dataclass(frozen=True)
class RaiseGelu(RewritePass):
    """x (1 + erf(x / sqrt 2)) / 2, or x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.

    The factors x, one half and the bracket may be multiplied in any order.
    """

    name: ClassVar[str] = "raise-gelu"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Raise one chain of multiplications that ends here."""
        if node.operator != Mul() or not node.output.type.is_float:
            return None
        factors, inner = _factors(node)
        found = next(((f, b) for f in factors if (b := _bracket(f)) is not None), None)
        if found is None:
            return None
        value, bracket = found
        x = bracket.x
        halves = [f for f in factors if holds(f, 0.5)]
        others = [f for f in factors if f is not value and f not in halves]
        if len(halves) != 1 or others != [x]:
            function = "Erf" if bracket.approximate == "none" else "Tanh"
            return Refused(f"1 + {function} %{value.name} is not multiplied by its x and by a half")
        dropped = [*inner, *bracket.nodes]
        refusal = enclosed(graph, dropped, node)
        if refusal is not None:
            return refusal
        if x.type != node.output.type:
            return Refused(f"%{x.name} is broadcast")
        change(node, Gelu(approximate=bracket.approximate), [x])
        for part in dropped:
            remove_unread(graph, part)
        return f"{len(dropped) + 1} nodes become Gelu"


def _factors(node: Node) -> tuple[list[Value], list[Node]]:
    """Operands of a product and, where one is a product itself, its operands and its node."""
    for value, other in orders(node):
        inner = producer_of(value, Mul)
        if inner is not None and inner.operator == Mul():
            return [operand(inner, 0), operand(inner, 1), other], [inner]
    return [operand(node, 0), operand(node, 1)], []


def _bracket(value: Value) -> Bracket | None:
    """A value that is 1 + erf(...) or 1 + tanh(...)."""
    add = producer_of(value, Add)
    if add is None or add.operator != Add():
        return None
    for one, other in orders(add):
        function = producer_of(other, Erf, Tanh)
        if not holds(one, 1.0) or function is None:
            continue
        inner = operand(function, 0)
        argument = _unscaled(inner) if isinstance(function.operator, Erf) else _uncubed(inner)
        if argument is None:
            continue
        x, nodes = argument
        approximate = "none" if isinstance(function.operator, Erf) else "tanh"
        return Bracket(x, [add, function, *nodes], approximate)
    return None


Argument = tuple[Value, list[Node]]


def _unscaled(value: Value) -> Argument | None:
    """x of x / sqrt 2 or x * sqrt 1/2."""
    node = value.producer
    if node is not None and node.operator == Div() and holds(operand(node, 1), math.sqrt(2.0)):
        return operand(node, 0), [node]
    return _multiple(value, math.sqrt(0.5))


def _uncubed(value: Value) -> Argument | None:
    """x of sqrt(2 / pi) (x + 0.044715 x^3)."""
    scaled = _multiple(value, _LINEAR)
    total = None if scaled is None else producer_of(scaled[0], Add)
    if scaled is None or total is None or total.operator != Add():
        return None
    for x, other in orders(total):
        term = _multiple(other, _CUBIC)
        cube = None if term is None else _cube(term[0], x)
        if term is not None and cube is not None:
            return x, [*scaled[1], total, *term[1], *cube]
    return None


def _multiple(value: Value, number: float) -> Argument | None:
    """v of a product of v and this number."""
    node = producer_of(value, Mul)
    if node is None or node.operator != Mul():
        return None
    return next(((v, [node]) for v, other in orders(node) if holds(other, number)), None)


def _cube(value: Value, x: Value) -> list[Node] | None:
    """The nodes of x^3, a power or two products."""
    node = producer_of(value, PowerOf, Mul)
    if node is None:
        return None
    if isinstance(node.operator, PowerOf):
        return [node] if node.operator.exponent == 3.0 and operand(node, 0) is x else None
    if node.operator != Mul():
        return None
    for lhs, rhs in orders(node):
        square = producer_of(lhs, Mul, PowerOf)
        if rhs is x and square is not None and is_square(square, x):
            return [node, square]
    return None
