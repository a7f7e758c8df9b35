"""Channels dealt out to groups anew, written as a Transpose between two Reshapes, as one ChannelShuffle.

It is lowered to one transposition: where images lie channels last, of the two innermost axes, and both
Reshapes are views. So it costs one pass over memory, in int8 a byte read and a byte written an element.
Whole, it is one value with one range instead of three, and functions move above it, where they fuse
with the convolution that gives the channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.core.types import Shape
from qglow.graph.graph import Graph, Node
from qglow.graph.ops.elementwise import Unary
from qglow.graph.ops.shape import ChannelShuffle, Gather, Reshape, Slice, Transpose
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
    """What swaps two factors of the channels and no more; functions of the result come before it.

    Where the result is not of the shape before because it is split at once, one Gather a part, the parts
    become Slices of the channels.
    """

    name: ClassVar[str] = "raise-channel-shuffle"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Raise what ends in one Reshape, or move one function above a ChannelShuffle."""
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
    """The Gathers that choose runs of the shuffled channels from an axis of their own, and what they are."""
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
    """How many groups the channels of `shape` are in, which `mover` swaps with the places in them."""
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
    """Two shuffles, one of which takes back the other."""
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
