"""The effect of places along an axis of an operand on a result."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from qglow.core.types import Shape


@dataclass(frozen=True, slots=True)
class AxisEffect:
    """Effect of the places along one axis of an operand on those of a result.

    axis: the axis of the result whose place i depends on place i of the operand's axis and on places that
    `neutral` fills; None where the result has no such axis. neutral: the real number that stands for places
    that shall have no effect on others; None where no place affects another one. cuts: the result has some
    of the places, beginning with one that attributes state. chosen: the result has places whose indices are
    the second operand. running: each place of the result depends on those before it too. others: axes of
    further results of the node, where those are others.
    """

    axis: int | None = None
    neutral: float | None = None
    cuts: bool = False
    chosen: bool = False
    running: bool = False
    factor: int = 1
    added: int = -1
    stride: int = 1
    others: tuple[int | None, ...] = ()

    def axis_of(self, number: int) -> int | None:
        """The axis of the node's result with this number."""
        return self.others[number - 1] if number and self.others else self.axis

    @property
    def keeps_places(self) -> bool:
        """Whether the result has as many places along the axis as the operand."""
        return (self.factor, self.added, self.stride) == (1, -1, 1)


def aligned_effect(axis: int, operand: Shape, result: Shape) -> AxisEffect:
    """The effect where shapes broadcast as numpy has it: each place decides the one at the same place."""
    return AxisEffect(axis + len(result) - len(operand))


def reshaped_effect(axis: int, operand: Shape, result: Shape) -> AxisEffect | None:
    """The effect of an axis that a reshape leaves whole, or merges with, or divides into, axes behind it.

    None where others in front of it are merged with it: its places are not together then.
    """
    before = prod(operand[:axis])
    places = [place for place in range(len(result)) if prod(result[:place]) == before]
    whole = next((place for place in places if result[place] == operand[axis]), None)
    if whole is not None:
        return AxisEffect(whole)
    if not places or 0 in operand:
        return None
    own, other = prod(operand[axis + 1 :]), prod(result[places[-1] + 1 :])
    if own % other == 0:
        return AxisEffect(places[-1], factor=own // other)
    parts = other // own
    return AxisEffect(places[-1], added=-parts, stride=parts) if other % own == 0 else None
