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
    the second operand.
    """

    axis: int | None = None
    neutral: float | None = None
    cuts: bool = False
    chosen: bool = False
    added: int = -1
    stride: int = 1


def aligned_effect(axis: int, operand: Shape, result: Shape) -> AxisEffect:
    """The effect where shapes broadcast as numpy has it: each place decides the one at the same place."""
    return AxisEffect(axis + len(result) - len(operand))


def reshaped_effect(axis: int, operand: Shape, result: Shape) -> AxisEffect | None:
    """The effect of an axis that a reshape leaves whole; None for one that it divides or merges."""
    before = prod(operand[:axis])
    found = (place for place, extent in enumerate(result) if extent == operand[axis])
    return next((AxisEffect(place) for place in found if prod(result[:place]) == before), None)
