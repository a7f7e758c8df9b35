"""Affine maps of channels with constant factors, laid out so that any number of channels vectorizes.

Factors are stored repeated to a period of whole vectors (3 channels: 48 values), so that a run
over many pixels needs no regard for where a pixel begins.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.elementwise import Affine
from qglow.instructions.program import Instruction
from qglow.kernels.builder import F32, Index, Value
from qglow.kernels.elementwise import CYCLES_A_VECTOR, LANES, affine_is_proven
from qglow.kernels.expressions import EXPRESSIONS, Point
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.operand import contiguous_runs
from qglow.kernels.sweep import outer_loops

UNROLLED_PERIOD = 8 * LANES
"""Up to this period the vectors of factors stay in registers."""


@kernel
@dataclass(frozen=True)
class PeriodicAffine(Kernel):
    """Runs of pixels, a period of factors at a time.

    `proven`: no int8 result comes near the range of int32 before it is clamped.
    """

    name: ClassVar[str] = "affine-periodic"

    proven: bool = False

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """Factors and shifts, repeated to whole vectors."""
        channels = instruction.operand("src").type.shape[-1]
        times = math.lcm(channels, LANES) // channels
        return {name: np.tile(_data(instruction, name), times) for name in ("scale", "shift")}

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Cycles by the number of vectors; less than the general loop's."""
        return instruction.operand("dest").type.size / isa.float_lanes * (CYCLES_A_VECTOR - 1)

    def emit(self, site: Site) -> None:
        """Outer loops around runs, and in a run whole periods and the rest; threads share one loop."""
        e, dest, src = site.e, site["dest"], site["src"]
        if not dest.type.size:
            return
        sizes = [dest.element_bytes, src.element_bytes]
        runs = contiguous_runs(dest.shape, [dest.strides, src.strides], sizes)
        period = math.lcm(dest.shape[-1], LANES)
        alone = not runs.outer and runs.length >= period
        with outer_loops(e, [dest.pointer, src.pointer], runs.outer, shared=True) as (to, start):

            def vector(base: Index, at: Index, count: int | None) -> None:
                """`at` is the position in the period that begins at `base`."""
                element = e.plus(base, at)
                factors = {
                    name: e.load_lanes(e.offset(pointer, e.scaled(at, 4)), F32, LANES)
                    for name, pointer in site.constants.items()
                }
                place = e.offset(start, e.scaled(element, sizes[1]))
                values = {"src": e.load_lanes(place, src.element, LANES, count), **factors}
                result = self._value(site, values)
                e.store_lanes(result, e.offset(to, e.scaled(element, sizes[0])), count)

            def part(base: Index, length: int) -> None:
                whole = length // LANES * LANES
                if whole <= UNROLLED_PERIOD:
                    for at in range(0, whole, LANES):
                        vector(base, at, None)
                else:
                    with e.loop(0, whole, LANES, "vector") as at:
                        vector(base, at, None)
                if length > whole:
                    vector(base, whole, length - whole)

            periods = runs.length // period
            if periods:
                first, last = e.share(periods, alone)
                with e.loop(e.scaled(first, period), e.scaled(last, period), period, "period") as base:
                    part(base, period)
            with e.last_share() if alone else nullcontext():
                part(periods * period, runs.length - periods * period)

    def _value(self, site: Site, values: dict[str, Value]) -> Value:
        point = Point(site.e, site.operation, site.operands, values, {}, LANES, self.proven)
        return EXPRESSIONS[Affine](point)


def _data(instruction: Instruction, name: str) -> Array:
    data = instruction.operand(name).data
    assert data is not None
    return np.asarray(data, np.float32)


@candidates_for(Affine)
def affine_candidates(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """Where the factors are constants."""
    if any(instruction.operand(name).data is None for name in ("scale", "shift")):
        return []
    return [PeriodicAffine(affine_is_proven(instruction))]
