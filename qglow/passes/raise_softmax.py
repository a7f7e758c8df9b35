"""Softmax and LogSoftmax from exponentials and sums, written out, and the guard of rows without a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Div, Mul, Sub
from qglow.graph.ops.functions import Exp, Log, Reciprocal
from qglow.graph.ops.logic import Compare, Not
from qglow.graph.ops.reduce import ReduceMax, ReduceSum
from qglow.graph.ops.selection import Where
from qglow.graph.ops.softmax import LogSoftmax, Softmax
from qglow.graph.rewriting import Outcome, RewritePass, change, enclosed, operand, producer_of, remove_unread
from qglow.passes.matching import orders


@dataclass(frozen=True)
class RaiseSoftmax(RewritePass):
    """Raise e^x / sum of e^x to Softmax, and its logarithm to LogSoftmax.

    Both operators subtract the maximum themselves, so a subtraction before them is removed, and they do
    not overflow where e^x would. A Where that turns the NaN of a Softmax to zeros becomes part of it: it is
    written behind attention, for queries that may see no key.
    """

    name: ClassVar[str] = "raise-softmax"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Raise the pattern that ends in this node."""
        if not node.output.type.is_float:
            return None
        if isinstance(node.operator, Log):
            return _logarithm(node, graph)
        if isinstance(node.operator, (Softmax, LogSoftmax)):
            return _without_maximum(node, graph)
        if node.operator == Where():
            return _guard(node, graph)
        return _quotient(node, graph) or _difference(node, graph)


def _quotient(node: Node, graph: Graph) -> Outcome:
    """e^x / sum, or e^x times the reciprocal of the sum."""
    for exponential, divisor, inverse in _divisions(node):
        exp, total = producer_of(exponential, Exp), producer_of(divisor, ReduceSum)
        if exp is not None and total is not None and operand(total, 0) is exponential:
            return _raise(node, graph, [*inverse, total, exp], Softmax)
    return None


def _divisions(node: Node) -> list[tuple[Value, Value, list[Node]]]:
    """Dividend, divisor and the Reciprocal between, for every way to read the node as a division."""
    if node.operator == Div():
        return [(operand(node, 0), operand(node, 1), [])]
    if node.operator != Mul():
        return []
    inverses = [(value, producer_of(other, Reciprocal)) for value, other in orders(node)]
    return [(value, operand(found, 0), [found]) for value, found in inverses if found is not None]


def _difference(node: Node, graph: Graph) -> Outcome:
    """x - ln of the sum of e^x."""
    log = producer_of(operand(node, 1), Log) if node.operator == Sub() else None
    total = None if log is None else producer_of(operand(log, 0), ReduceSum)
    exp = None if total is None else producer_of(operand(total, 0), Exp)
    if log is None or total is None or exp is None or operand(exp, 0) is not operand(node, 0):
        return None
    return _raise(node, graph, [log, total, exp], LogSoftmax)


def _raise(
    node: Node, graph: Graph, parts: list[Node], operator: type[Softmax] | type[LogSoftmax]
) -> Outcome:
    exp, total = parts[-1], parts[-2]
    assert isinstance(total.operator, ReduceSum)
    axes = total.operator.axes
    if len(axes) != 1:
        return Refused(f"the sum of {exp.name} is over {len(axes)} axes")
    if not total.operator.keepdims:
        return Refused(f"{total.name} drops its axis, so that sums meet other elements than their own")
    refusal = enclosed(graph, parts, node)
    if refusal is not None:
        return refusal
    change(node, operator(axis=axes[0]), [operand(exp, 0)])
    for part in parts:
        remove_unread(graph, part)
    return f"{len(parts) + 1} nodes become {operator.name}"


def _logarithm(node: Node, graph: Graph) -> Outcome:
    softmax = producer_of(operand(node, 0), Softmax)
    if softmax is None:
        return None
    assert isinstance(softmax.operator, Softmax)
    if softmax.operator.masked_to_zero:
        return Refused(f"rows of {softmax.name} without a score are zeros, which LogSoftmax does not give")
    refusal = enclosed(graph, [softmax], node)
    if refusal is not None:
        return refusal
    change(node, LogSoftmax(axis=softmax.operator.axis), [operand(softmax, 0)])
    remove_unread(graph, softmax)
    return f"Log of {softmax.name} becomes LogSoftmax"


def _guard(node: Node, graph: Graph) -> Outcome:
    """Softmax whose rows of NaN become zeros: NaN is what does not equal itself."""
    inverted = producer_of(operand(node, 0), Not)
    test = producer_of(operand(node if inverted is None else inverted, 0), Compare)
    if test is None or operand(test, 0) is not operand(test, 1):
        return None
    relations = (Compare("not-equal"), Compare("equal"))[:: 1 if inverted is None else -1]
    if test.operator not in relations:
        return None
    zero, shares = (operand(node, 1), operand(node, 2))[:: 1 if test.operator == relations[0] else -1]
    softmax = producer_of(shares, Softmax)
    axis = None if softmax is None else softmax.operator.distributes_along(softmax.input_types())
    if softmax is None or axis is None or operand(test, 0) is not shares:
        return None
    if zero.data is None or np.any(zero.data) or shares.type != node.output.type:
        return Refused(f"what replaces NaN of {softmax.name} are not zeros in its shape")
    parts = [*([] if inverted is None else [inverted]), test, softmax]
    refusal = enclosed(graph, parts, node)
    if refusal is not None:
        return refusal
    change(node, Softmax(axis, masked_to_zero=True), [operand(softmax, 0)])
    for part in parts:
        remove_unread(graph, part)
    return f"the guard of {softmax.name} becomes part of it"


def _without_maximum(node: Node, graph: Graph) -> Outcome:
    """Let x - max x be x: the operators subtract the maximum themselves."""
    assert isinstance(node.operator, (Softmax, LogSoftmax))
    shift = producer_of(operand(node, 0), Sub)
    top = None if shift is None or shift.operator != Sub() else producer_of(operand(shift, 1), ReduceMax)
    if shift is None or top is None or operand(top, 0) is not operand(shift, 0):
        return None
    assert isinstance(top.operator, ReduceMax)
    rank = len(node.output.type.shape)
    if not top.operator.keepdims or [a % rank for a in top.operator.axes] != [node.operator.axis % rank]:
        return Refused(f"{top.name} is not the maximum along axis {node.operator.axis}")
    change(node, node.operator, [operand(shift, 0)])
    remove_unread(graph, shift)
    remove_unread(graph, top)
    return f"{node.operator.name} subtracts its maximum itself"
