"""The steps between the products of an attention, as they are read from a graph: factor and masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from qglow.core.types import Shape
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Div, Mul
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.normalization import Affine
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Reshape
from qglow.graph.rewriting import operand, private, producer_of
from qglow.instructions.ops.attention import Attention

Live = Mapping[str, object]
"""What the number of live places follows from, by the name of the input that tells them."""


@dataclass
class StepsWalk:
    """The way from shares back to the product of queries and keys, while it is walked."""

    graph: Graph
    live_names: Live
    value: Value
    steps: Attention = field(default_factory=Attention)
    addend: Value | None = None
    condition: Value | None = None
    live: Value | None = None
    inner: list[Node] = field(default_factory=list)

    def take(self, *kinds: type[Operator]) -> Node | None:
        """The producer of the value if it is of a kind (or of any) and nobody else reads the value."""
        node = producer_of(self.value, *kinds) if kinds else self.value.producer
        hidden = private(self.graph, self.value) is None and self.value.type.is_float
        return node if hidden else None

    def pass_by(self, node: Node, before: Value) -> None:
        """Go on from an operand of a node, which the instruction computes."""
        self.inner.append(node)
        self.value = before


def walk_back(graph: Graph, last: Node, live: Live) -> tuple[StepsWalk, Shape, Node] | None:
    """Walk from the last product to the first one: the steps, the shape of scores, and the first product.

    None where there are other nodes between them, or values that others read.
    """
    walk = StepsWalk(graph, live, operand(last, 0))
    merged = _reshaped(walk)
    sharing, scores = walk.take(), walk.value.type.shape
    if sharing is None or len(scores) < 3:
        return None
    if sharing.operator.distributes_along(sharing.input_types()) != len(scores) - 1:
        return None
    guarded: bool = sharing.operator.masked_to_zero  # type: ignore[attr-defined]
    walk.steps = replace(walk.steps, masked_to_zero=guarded)
    walk.pass_by(sharing, operand(sharing, 0))
    _pass_steps(walk, scores)
    if _reshaped(walk) != merged:
        return None
    product = walk.take(MatMul)
    if product is not None:
        walk.inner.append(product)
    return None if product is None else (walk, scores, product)


def _reshaped(walk: StepsWalk) -> bool:
    """Pass by a reshape that tells apart, or joins, rows of heads that share keys."""
    node = walk.take(Reshape)
    if node is None:
        return False
    before, after = operand(node, 0).type.shape, node.output.type.shape
    if len(before) != len(after) or len(before) < 3 or before[-1] != after[-1]:
        return False
    walk.pass_by(node, operand(node, 0))
    return True


def _pass_steps(walk: StepsWalk, scores: Shape) -> None:
    """Pass by the steps before shares, the last one first."""
    _take_live(walk, scores)
    for _ in range(2):
        if walk.condition is None and _take_condition(walk, scores):
            continue
        if walk.addend is None and _take_addend(walk, scores):
            walk.steps = replace(walk.steps, chooses_first=walk.condition is None)
    if walk.condition is None:
        walk.steps = replace(walk.steps, chooses_first=False)
    _take_factor(walk)


def _take_live(walk: StepsWalk, scores: Shape) -> None:
    """Pass by the choice of live places of keys; others are minus infinity."""
    node = walk.take(Where)
    if node is None:
        return
    condition, chosen, other = (operand(node, index) for index in range(3))
    if condition.name not in walk.live_names or condition.type.shape[-1:] != scores[-1:]:
        return
    if condition.type.size != scores[-1] or chosen.type.shape != scores or _number(other) != -np.inf:
        return
    walk.live = condition
    walk.pass_by(node, chosen)


def _take_condition(walk: StepsWalk, scores: Shape) -> bool:
    """Pass by a choice between scores and a number."""
    node = walk.take(Where)
    if node is None:
        return False
    condition, chosen, other = (operand(node, index) for index in range(3))
    hides = chosen.is_constant
    chosen, other = (other, chosen) if hides else (chosen, other)
    number = _number(other)
    if number is None or chosen.type.shape != scores or not _spreads(condition, scores):
        return False
    walk.condition = condition
    walk.steps = replace(walk.steps, otherwise=number, hides=hides)
    walk.pass_by(node, chosen)
    return True


def _take_addend(walk: StepsWalk, scores: Shape) -> bool:
    """Pass by the addition of a mask."""
    node = walk.take(Add)
    if node is None or node.operator != Add():
        return False
    for index in (0, 1):
        x, addend = operand(node, index), operand(node, 1 - index)
        is_product = x.type.shape == scores and x.producer is not None and not x.is_constant
        if is_product and _spreads(addend, scores) and _leads_to_product(x):
            walk.addend = addend
            walk.pass_by(node, x)
            return True
    return False


def _leads_to_product(value: Value) -> bool:
    """Whether a value is a product of two computed values but for the steps of the instruction."""
    node = value.producer
    while node is not None and type(node.operator) in (Mul, Div, Affine, Where, Reshape, Add):
        whole = [v for v in node.inputs if v is not None and v.type.size == value.type.size]
        node = next((v.producer for v in whole if v.producer is not None), None)
    return node is not None and node.operator == MatMul()


def _take_factor(walk: StepsWalk) -> None:
    """Pass by a factor or a divisor of all scores."""
    node = walk.take(Mul, Div, Affine)
    if node is None:
        return
    x, factor, divides = operand(node, 0), _factor(node), node.operator == Div()
    if factor is None and node.operator == Mul():
        x, factor = operand(node, 1), _number(operand(node, 0))
    if factor is None or x.type.shape != node.output.type.shape:
        return
    walk.steps = replace(walk.steps, factor=factor, divides=divides)
    walk.pass_by(node, x)


def _factor(node: Node) -> float | None:
    """The one number that a node multiplies its operand with, or divides it by."""
    if node.operator in (Mul(), Div()):
        return _number(operand(node, 1))
    if node.operator != Affine():
        return None  # within bounds
    scale, shift = operand(node, 1).data, operand(node, 2).data
    if scale is None or shift is None or np.any(shift):
        return None
    return float(scale[0]) if np.all(scale == scale[0]) else None


def _number(value: Value) -> float | None:
    """The number that a float constant of one element holds."""
    data = value.data
    return float(data.reshape(())) if data is not None and data.size == 1 and value.type.is_float else None


def _spreads(value: Value, scores: Shape) -> bool:
    """Whether a mask repeats along axes of the scores, but not along keys."""
    shape = value.type.shape
    padded = (*(1,) * (len(scores) - len(shape)), *shape)
    if len(padded) != len(scores) or padded[-1] != scores[-1]:
        return False
    return all(own in (1, full) for own, full in zip(padded, scores, strict=True))
