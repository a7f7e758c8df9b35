"""Normalization by neighbours along the last axis: everything between loads and one store in registers.

The neighbours of a vector of elements are vectors that begin some elements before or after it, loaded where
they lie. Vectors whose neighbours reach over an end load under a mask, which is constant where it can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.ops.normalization import LocalResponse
from qglow.instructions.program import Instruction
from qglow.kernels.builder import F32, I1, I64, Emitter, Index, Value, constant_vector, scalar, vec
from qglow.kernels.functions import emit_power_of
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.numerics.normalization import response_factor
from qglow.numerics.reductions import PARTIAL_SUMS

LANES = 16
CYCLES_A_VECTOR, CYCLES_A_TAP = 40.0, 1.5
ELEMENT_BYTES = 4


@kernel
@dataclass(frozen=True)
class Neighbours(Kernel):
    """Vectors of 16 elements, the last one of a row cut."""

    name: ClassVar[str] = "localresponse"

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Roots and a division, and a load and a product for every neighbour."""
        vectors = instruction.operand("dest").type.size / isa.float_lanes
        taps: int = instruction.operation.size  # type: ignore[attr-defined]
        return vectors * (CYCLES_A_VECTOR + taps * CYCLES_A_TAP)

    def emit(self, site: Site) -> None:
        """One row after the other; threads share them."""
        e, dest, src = site.e, site["dest"], site["src"]
        if not dest.type.size:
            return
        length = dest.shape[-1]
        with e.loop(*e.share(dest.type.size // length), name="row") as row:
            step = e.scaled(row, length * ELEMENT_BYTES)
            places = e.offset(dest.pointer, step), e.offset(src.pointer, step)
            _Row(e, site.operation, *places, length).emit()


@dataclass(frozen=True)
class _Row:
    """One row of `length` elements."""

    e: Emitter
    operation: LocalResponse
    dest: Value
    src: Value
    length: int

    @property
    def before(self) -> int:
        """How far neighbours reach to the front."""
        return (self.operation.size - 1) // 2

    def emit(self) -> None:
        """Vectors with an end nearby one by one, those between in a loop; wide windows all in a loop."""
        whole, after = self.length // LANES * LANES, self.operation.size - 1 - self.before
        if self.operation.size > PARTIAL_SUMS:
            with self.e.loop(0, whole, LANES, "vector") as start:
                self._vector(start, LANES, inside=False)
        else:
            first = min(-(-self.before // LANES) * LANES, whole)
            last = max((self.length - after) // LANES * LANES, first)
            for start in range(0, first, LANES):
                self._vector(start, LANES, inside=False)
            with self.e.loop(first, last, LANES, "vector") as start:
                self._vector(start, LANES, inside=True)
            for start in range(last, whole, LANES):
                self._vector(start, LANES, inside=False)
        if self.length > whole:
            self._vector(whole, self.length - whole, inside=False)

    def _vector(self, start: Index, count: int, inside: bool) -> None:
        """`count` elements from `start` on; `inside`: no neighbour is beyond an end."""
        e, b, operation = self.e, self.e.b, self.operation
        kind = vec(F32, LANES)
        factor = scalar(kind, float(response_factor(operation.alpha, operation.size)))
        total = b.fadd(b.fmul(self._sum(start, inside), factor), scalar(kind, operation.bias))
        place = e.scaled(start, ELEMENT_BYTES)
        x = e.load_lanes(e.offset(self.src, place), F32, LANES, count)
        result = b.fdiv(x, emit_power_of(e, total, operation.beta))
        e.store_lanes(result, e.offset(self.dest, place), count)

    def _sum(self, start: Index, inside: bool) -> Value:
        """The squares of the window of every element, in the order of rule 9 of the numeric contract."""
        e, size = self.e, self.operation.size
        first = e.plus(start, -self.before)
        sums: list[Value] = [scalar(vec(F32, LANES), 0.0)] * PARTIAL_SUMS
        turns = size // PARTIAL_SUMS * PARTIAL_SUMS
        if turns:
            with e.carrying_loop(0, turns, sums, PARTIAL_SUMS, "turn") as carry:
                at = e.plus(first, carry.index)
                squares = [self._square(e.plus(at, i), inside) for i in range(PARTIAL_SUMS)]
                carry.next([e.b.fadd(*pair) for pair in zip(carry.values, squares, strict=True)])
            sums = carry.values
        for i in range(size - turns):
            square = self._square(e.plus(first, turns + i), inside)
            sums[i] = e.b.fadd(sums[i], square) if turns else square
        # A partial sum of nothing would add 0 to what is never -0.
        return self._tree(sums if turns else sums[:size])

    def _tree(self, sums: Sequence[Value]) -> Value:
        half = PARTIAL_SUMS // 2
        found = list(sums)
        while half:
            kept = [
                self.e.b.fadd(v, found[half + i]) if half + i < len(found) else v
                for i, v in enumerate(found[:half])
            ]
            found, half = kept, half // 2
        return found[0]

    def _square(self, at: Index, inside: bool) -> Value:
        e = self.e
        place = e.offset(self.src, e.scaled(at, ELEMENT_BYTES))
        x = e.load_lanes(place, F32, LANES) if inside else e.load_where(place, F32, self._mask(at))
        return e.b.fmul(x, x)

    def _mask(self, at: Index) -> Value:
        """Which of the elements from `at` on are between both ends."""
        if isinstance(at, int):
            return constant_vector(I1, [int(0 <= at + lane < self.length) for lane in range(LANES)])
        kind = vec(I64, LANES)
        lanes = self.e.b.add(self.e.splat(at, LANES), constant_vector(I64, range(LANES)))
        return self.e.b.icmp_unsigned("<", lanes, scalar(kind, self.length))


@candidates_for(LocalResponse)
def local_response_candidates(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """The one loop."""
    return [Neighbours()]
