"""A channel shuffle written as a Transpose between two Reshapes, raised to one ChannelShuffle.

It is lowered to one transposition between two views; if channels lie last, of the two innermost axes. So
it costs one pass over memory: in int8, one byte read and one byte written for each element. As one
operator it has one value with one range instead of three, and elementwise functions can move above it,
where they fuse with the convolution that computes the channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.core.types import Shape
from qglow.graph.graph import Graph, Node
from qglow.graph.ops.elementwise import Unary
from qglow.graph.ops.movement import Gather, Slice
from qglow.graph.ops.shape import ChannelShuffle, Reshape, Transpose
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    bypass,
    change,
    operand,
    private,
    producer_of,
    remove_unread,
    sink,
)


@dataclass(frozen=True)
class RaiseChannelShuffle(RewritePass):
    """Raise nodes that only swap two factors of the channels; functions of the result move before them.

    If the result has another shape because it is split at once, one Gather for each part, the parts become
    Slices of the channels.
    """

    name: ClassVar[str] = "raise-channel-shuffle"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Raise the pattern that ends in one Reshape, or move one function above a ChannelShuffle."""
        if isinstance(node.operator, Reshape):
            return _raise(node, graph)
        if isinstance(node.operator, ChannelShuffle):
            return _undo(node, graph)
        return _below(node, graph) if isinstance(node.operator, Unary) else None


def _raise(node: Node, graph: Graph) -> Outcome:
    mover = producer_of(operand(node, 0), Transpose)
    first = None if mover is None else producer_of(operand(mover, 0), Reshape)
    if mover is None or first is None:
        return None
    x = operand(first, 0)
    if len(x.type.shape) < 2:
        return None
    groups = _groups(x.type.shape, operand(mover, 0).type.shape, mover)
    if groups is None:
        return Refused(f"Transpose '{mover.name}' does not swap two factors of the channels of %{x.name}")
    parts = [] if node.output.type == x.type else _parts(node, graph, x.type.shape)
    refusal = parts if isinstance(parts, Refused) else private(graph, mover.output)
    if refusal is not None or isinstance(parts, Refused):
        return refusal
    node.output.type = x.type
    change(node, ChannelShuffle(groups=groups), [x])
    for user, part in parts:
        change(user, part, [node.output])
    remove_unread(graph, mover)
    remove_unread(graph, first)
    return f"Transpose '{mover.name}' between two Reshapes becomes ChannelShuffle"


def _parts(node: Node, graph: Graph, shape: Shape) -> list[tuple[Node, Slice]] | Refused:
    """The Gathers that each take one part of the shuffled channels, with the Slices that replace them."""
    refused = Refused(f"%{node.output.name} is neither of the shape before nor read in parts of it")
    if graph.is_output(node.output) or shape[0] != 1:
        return refused
    found = []
    for user in node.output.users():
        gather = user.operator
        index = user.inputs[1].data if isinstance(gather, Gather) and user.inputs[1] is not None else None
        part = (1, shape[1] // node.output.type.shape[0], *shape[2:])
        if gather != Gather(axis=0) or index is None or index.shape != () or user.output.type.shape != part:
            return refused
        start = int(index) % node.output.type.shape[0] * part[1]
        starts, ends = (0, start, *(0 for _ in shape[2:])), (1, start + part[1], *shape[2:])
        found.append((user, Slice(starts, ends, (1,) * len(shape))))
    return found


def _groups(shape: Shape, apart: Shape, mover: Node) -> int | None:
    """Number of groups of the channels of `shape` that `mover` swaps with the places in them, or None."""
    assert isinstance(mover.operator, Transpose)
    order = [axis for axis in mover.operator.perm if apart[axis] != 1]
    moved = [place for place, axis in enumerate(sorted(order)) if order[place] != axis]
    if not moved:
        return None
    axes = sorted(order)
    first, last = axes[moved[0]], axes[moved[-1]] + 1
    if math.prod(apart[:first]) != shape[0] or math.prod(apart[first:last]) != shape[1]:
        return None
    swapped = order[moved[0] : moved[-1] + 1]
    split = swapped.index(first)
    if swapped != [*sorted(swapped)[len(swapped) - split :], *sorted(swapped)[: len(swapped) - split]]:
        return None
    return math.prod(apart[axis] for axis in swapped[split:])


def _undo(node: Node, graph: Graph) -> Outcome:
    """Remove two successive shuffles of which the second undoes the first."""
    before = producer_of(operand(node, 0), ChannelShuffle)
    if before is None:
        return None
    assert isinstance(node.operator, ChannelShuffle) and isinstance(before.operator, ChannelShuffle)
    if node.operator.groups * before.operator.groups != node.output.type.shape[1]:
        return Refused(f"{before} is of {before.operator.groups} groups, which this does not take back")
    refusal = bypass(graph, node, operand(before, 0))
    if refusal is None:
        remove_unread(graph, before)
    return refusal or f"takes back ChannelShuffle '{before.name}'"


def _below(node: Node, graph: Graph) -> Outcome:
    mover = producer_of(operand(node, 0), ChannelShuffle)
    if mover is None:
        return None
    refusal = private(graph, mover.output)
    if refusal is not None:
        return refusal
    sink(graph, mover, node, [operand(mover, 0)], node.operator)
    return f"moved above ChannelShuffle '{mover.name}'"
