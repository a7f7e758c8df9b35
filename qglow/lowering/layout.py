"""Reshapes of values that are stored in another axis order than the model's, without copies if possible.

A reshape splits and merges runs of neighbouring axes: its *groups*, which have equally many elements
before and after. A group whose axes are adjacent and ascending in memory can be viewed in its new shape
at any place; only groups whose axes are scattered need a transposition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from qglow.core.types import Shape
from qglow.lowering.context import NHWC, Order, natural

Group = tuple[tuple[int, ...], tuple[int, ...]]
"""Axes before and axes after."""


def groups(before: Shape, after: Shape) -> list[Group]:
    """The smallest groups of a reshape between two shapes of equal, positive size."""
    found: list[Group] = []
    i = j = 0
    while i < len(before) or j < len(after):
        start_i, start_j = i, j
        i, j = min(i + 1, len(before)), min(j + 1, len(after))
        while math.prod(before[start_i:i]) != math.prod(after[start_j:j]):
            if math.prod(before[start_i:i]) < math.prod(after[start_j:j]):
                i += 1
            else:
                j += 1
        found.append((tuple(range(start_i, i)), tuple(range(start_j, j))))
    return found


def joined_order(shape: Shape, order: Order, parts: Sequence[Group]) -> Order:
    """`order` with the axes of every group made adjacent, at the place of the group's last axis."""
    place = {axis: position for position, axis in enumerate(order)}
    last = [max((place[a] for a in axes if shape[a] != 1), default=-1) for axes, _ in parts]
    ranked = sorted(range(len(parts)), key=lambda number: (last[number], number))
    return tuple(axis for number in ranked for axis in parts[number][0])


def reshaped_order(shape: Shape, order: Order, parts: Sequence[Group]) -> Order:
    """Order of the axes after a reshape, for an order before it that `joined_order` gave."""
    place = {axis: position for position, axis in enumerate(order)}
    first = [min((place[a] for a in axes if shape[a] != 1), default=-1) for axes, _ in parts]
    ranked = sorted(range(len(parts)), key=lambda number: (first[number], number))
    return tuple(axis for number in ranked for axis in parts[number][1])


def settled(shape: Shape, order: Order) -> Order:
    """The natural order or NHWC if it describes the same memory as `order`, else `order`.

    Axes of size 1 may stand anywhere in an order. A usual order saves the view that a reader would need.
    """
    moved = [axis for axis in order if shape[axis] != 1]
    for usual in (natural(shape), NHWC):
        if len(usual) == len(shape) and [axis for axis in usual if shape[axis] != 1] == moved:
            return usual
    return order
