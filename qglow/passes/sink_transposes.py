"""Transposes move down, towards others that undo them; operators before and after them can then fuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Binary, Unary
from qglow.graph.ops.normalization import Affine
from qglow.graph.ops.shape import Concat, Pad, Slice, Transpose
from qglow.graph.ops.softmax import Softmax
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    bypass,
    new_constant,
    operand,
    private,
    producer_of,
    sink,
)
from qglow.passes.simplify_algebra import join_transposes

Perm = tuple[int, ...]
Adapt = Callable[[Operator, Perm], Operator | None]


@dataclass(frozen=True)
class SinkTransposes(RewritePass):
    """`f(transpose(x))` is `transpose(f(x))` for elementwise operators and data movement.

    Pairs that meet are joined, and what puts axes back in order is removed.
    """

    name: ClassVar[str] = "sink-transposes"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Move the Transpose before one node behind it."""
        operator = node.operator
        if isinstance(operator, Transpose):
            return _cancel(node, graph) or join_transposes(node, graph)
        if len(node.outputs) != 1 or node.output.type.is_quantized:
            return None
        if isinstance(operator, Binary):
            return _below_binary(node, graph)
        if isinstance(operator, Concat):
            return _below_concat(node, graph)
        adapt = _adapter(operator)
        return None if adapt is None else _below_one(node, graph, adapt)


def _cancel(node: Node, graph: Graph) -> Outcome:
    assert isinstance(node.operator, Transpose)
    if node.operator.perm != tuple(range(len(node.operator.perm))):
        return None
    return bypass(graph, node, operand(node, 0)) or "Transpose changes nothing"


def _below_one(node: Node, graph: Graph, adapt: Adapt) -> Outcome:
    mover = producer_of(operand(node, 0), Transpose)
    if mover is None:
        return None
    refusal = private(graph, mover.output)
    if refusal is not None:
        return refusal
    adapted = adapt(node.operator, _perm(mover))
    if adapted is None:
        return Refused(f"Transpose '{mover.name}' moves the channels")
    return _sink(graph, mover, node, [operand(mover, 0), *node.inputs[1:]], adapted)


def _below_concat(node: Node, graph: Graph) -> Outcome:
    operator = node.operator
    assert isinstance(operator, Concat)
    values = [operand(node, index) for index in range(len(node.inputs))]
    movers = _common_movers(node, graph, values)
    if not isinstance(movers, list):
        return movers
    perm = _perm(movers[0])
    adapted = Concat(axis=perm[operator.axis % len(perm)])
    return _sink_all(graph, movers, node, [operand(mover, 0) for mover in movers], adapted)


def _below_binary(node: Node, graph: Graph) -> Outcome:
    values = [operand(node, 0), operand(node, 1)]
    computed = [value for value in values if not value.is_constant]
    movers = _common_movers(node, graph, computed)
    if not isinstance(movers, list):
        return movers
    rank = len(_perm(movers[0]))
    if any(len(value.type.shape) > rank for value in values):
        return Refused("a constant has more axes than the transposed operand")
    sources = iter(movers if len(computed) > 1 and computed[0] is not computed[1] else movers * 2)
    inputs = [
        _untransposed(graph, value, _perm(movers[0])) if value.is_constant else operand(next(sources), 0)
        for value in values
    ]
    return _sink_all(graph, movers, node, inputs, node.operator)


def _common_movers(node: Node, graph: Graph, values: list[Value]) -> list[Node] | Outcome:
    """The Transposes of one permutation that give all the values; None where there is none at all."""
    movers = [producer_of(value, Transpose) for value in values]
    found = [mover for mover in movers if mover is not None]
    if not found:
        return None
    if len(found) < len(movers):
        return Refused("not all its operands are transposed")
    if len({_perm(mover) for mover in found}) > 1:
        return Refused("its operands are transposed in different ways")
    refusals = [private(graph, mover.output) for mover in found]
    return next((refusal for refusal in refusals if refusal is not None), None) or found


def _sink_all(
    graph: Graph, movers: list[Node], node: Node, inputs: list[Value | None] | list[Value], operator: Operator
) -> str:
    """One of the Transposes moves, the others are no longer read."""
    for mover in dict.fromkeys(movers[1:]):
        if mover is not movers[0]:
            node.inputs = tuple(value for value in node.inputs if value is not mover.output)
            graph.remove(mover)
    return _sink(graph, movers[0], node, list(inputs), operator)


def _sink(graph: Graph, mover: Node, node: Node, inputs: list[Value | None], operator: Operator) -> str:
    sink(graph, mover, node, inputs, operator)
    return f"moved above Transpose '{mover.name}'"


def _untransposed(graph: Graph, value: Value, perm: Perm) -> Value:
    """A constant as it must be for the result to be transposed by `perm` after."""
    if value.type.size == 1 or value.data is None:
        return value
    shape = (1,) * (len(perm) - value.data.ndim) + value.data.shape
    inverse = tuple(perm.index(axis) for axis in range(len(perm)))
    return new_constant(graph, f"{value.name}.unmoved", np.transpose(value.data.reshape(shape), inverse))


def _perm(mover: Node) -> Perm:
    assert isinstance(mover.operator, Transpose)
    return mover.operator.perm


def _adapter(operator: Operator) -> Adapt | None:
    if isinstance(operator, Unary):
        return lambda same, perm: same
    return _ADAPTERS.get(type(operator))


def _affine(operator: Operator, perm: Perm) -> Operator | None:
    return operator if perm[1] == 1 else None


def _softmax(operator: Operator, perm: Perm) -> Operator | None:
    assert isinstance(operator, Softmax)
    return dataclasses.replace(operator, axis=perm[operator.axis % len(perm)])


def _slice(operator: Operator, perm: Perm) -> Operator | None:
    assert isinstance(operator, Slice)
    return Slice(*(_moved(part, perm) for part in (operator.starts, operator.ends, operator.steps)))


def _pad(operator: Operator, perm: Perm) -> Operator | None:
    assert isinstance(operator, Pad)
    before, after = operator.pads[: len(perm)], operator.pads[len(perm) :]
    return dataclasses.replace(operator, pads=_moved(before, perm) + _moved(after, perm))


def _moved(entries: tuple[int, ...], perm: Perm) -> tuple[int, ...]:
    """Entries of transposed axes, in the order of the axes before."""
    return tuple(entries[perm.index(axis)] for axis in range(len(perm)))


_ADAPTERS: dict[type[Operator], Adapt] = {Affine: _affine, Softmax: _softmax, Slice: _slice, Pad: _pad}
