"""Affine maps with constant factors by channel, vectorized for any number of channels.

Factors are stored repeatedly up to a period, the least common multiple of channels and lanes (3 channels in
vectors of 16: 48 values). Thus a vector may cross from one pixel to the next: the vector of factors that
belongs to it is stored as a whole.
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
from qglow.kernels.elementwise.elementwise import affine_is_proven
from qglow.kernels.elementwise.expressions import EXPRESSIONS, Point
from qglow.kernels.emit.builder import F32, Index, Value
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import contiguous_runs
from qglow.kernels.emit.sweep import cut_at_live, nested_widths, outer_loops
from qglow.kernels.emit.target import VectorTarget

UNROLLED_VECTORS = 8
"""Periods of up to this many vectors are unrolled, so that their factors can stay in registers."""


@kernel
@dataclass(frozen=True)
class PeriodicAffine(Kernel):
    """Affine map over contiguous runs of pixels, a period of factors at a time.

    `proven`: before the clamp, all int8 results are far within int32, so rounding needs no float clamp.
    """

    name: ClassVar[str] = "affine-periodic"
    limits_live: ClassVar[bool] = True

    proven: bool = False

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Factors and shifts in float32, repeated to a period of whole vectors."""
        channels = instruction.operand("src").type.shape[-1]
        times = math.lcm(channels, target.loop_lanes) // channels
        return {name: np.tile(_data(instruction, name), times) for name in ("scale", "shift")}

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Estimated cycles, by the number of vectors: fewer for each than in the general elementwise loop."""
        return instruction.operand("dest").type.size / target.float_lanes * target.model.loops.affine_vector

    def emit(self, site: Site) -> None:
        """Emit loops over runs, and in a run over whole periods, then the rest; threads share one loop."""
        e, dest, src, lanes = site.e, site["dest"], site["src"], site.target.loop_lanes
        if not dest.type.size:
            return
        sizes = [dest.element_bytes, src.element_bytes]
        runs = cut_at_live(e, contiguous_runs(dest.shape, [dest.strides, src.strides], sizes), sizes)
        period = math.lcm(dest.shape[-1], lanes)
        alone = not runs.outer and runs.length >= period
        widths = nested_widths(runs.outer, runs.length)
        with outer_loops(e, [dest.pointer, src.pointer], runs.outer, True, widths) as (to, start):

            def vector(base: Index, at: Index, count: int | None) -> None:
                """Emit the vector at position `at` of the period that begins at element `base`."""
                element = e.plus(base, at)
                factors = {
                    name: e.load_lanes(e.offset(pointer, e.scaled(at, 4)), F32, lanes)
                    for name, pointer in site.constants.items()
                }
                place = e.offset(start, e.scaled(element, sizes[1]))
                values = {"src": e.load_lanes(place, src.element, lanes, count), **factors}
                result = self._value(site, values)
                e.store_lanes(result, e.offset(to, e.scaled(element, sizes[0])), count)

            def part(base: Index, length: int) -> None:
                whole = length // lanes * lanes
                if whole <= UNROLLED_VECTORS * lanes:
                    for at in range(0, whole, lanes):
                        vector(base, at, None)
                else:
                    with e.loop(0, whole, lanes, "vector") as at:
                        vector(base, at, None)
                if length > whole:
                    vector(base, whole, length - whole)

            periods = runs.length // period
            if periods:
                first, last = e.share(periods, alone)
                last = e.minimum(last, e.live_pieces(periods, period, runs.length))
                with e.loop(e.scaled(first, period), e.scaled(last, period), period, "period") as base:
                    part(base, period)
            with e.last_share() if alone else nullcontext():
                part(periods * period, runs.length - periods * period)

    def _value(self, site: Site, values: dict[str, Value]) -> Value:
        point = Point(site.e, site.operation, site.operands, values, {}, site.target.loop_lanes, self.proven)
        return EXPRESSIONS[Affine](point)


def _data(instruction: Instruction, name: str) -> Array:
    data = instruction.operand(name).data
    assert data is not None
    return np.asarray(data, np.float32)


@candidates_for(Affine)
def affine_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for factors that are constants, none for others."""
    if any(instruction.operand(name).data is None for name in ("scale", "shift")):
        return []
    return [PeriodicAffine(affine_is_proven(instruction))]
