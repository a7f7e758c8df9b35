"""Normalization by neighbours along the last axis: everything between loads and one store in registers.

The neighbours of a vector of elements are vectors that begin some elements before or after it, loaded where
they lie. Vectors whose neighbours reach beyond an end of the row load under a mask, a constant one where the
position is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.ops.normalization import LocalResponse
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.scalar import emit_scalar
from qglow.kernels.emit.builder import F32, I1, I64, Index, Value, constant_vector, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.numerics.normalization import response_factor
from qglow.numerics.reductions import PARTIAL_SUMS
from qglow.numerics.scalar.elementary import PowerOf

ELEMENT_BYTES = 4


@kernel
@dataclass(frozen=True)
class Neighbours(Kernel):
    """Normalization of each row in vectors, of which the last may be partial."""

    name: ClassVar[str] = "localresponse"
    limits_live: ClassVar[bool] = True

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of roots and a division for each vector, plus a load and a product for each neighbour."""
        vectors = instruction.operand("dest").type.size / target.float_lanes
        taps: int = instruction.operation.size  # type: ignore[attr-defined]
        costs = target.model.loops
        return vectors * (costs.normalized_vector + taps * costs.neighbour_vector)

    def emit(self, site: Site) -> None:
        """Emit a loop over rows, which threads share."""
        e, dest, src = site.e, site["dest"], site["src"]
        if not dest.type.size:
            return
        length = dest.shape[-1]
        with e.live_rows(dest.type.size // length, length) as row:
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
    def lanes(self) -> int:
        """Number of elements computed at a time."""
        return self.e.target.loop_lanes

    @property
    def before(self) -> int:
        """Number of neighbours before an element."""
        return (self.operation.size - 1) // 2

    def emit(self) -> None:
        """Emit vectors near an end one by one under constant masks, those between in a loop without masks.

        For windows of more than `PARTIAL_SUMS` elements all whole vectors are in one loop, with masks.
        """
        lanes, after = self.lanes, self.operation.size - 1 - self.before
        whole = self.length // lanes * lanes
        if self.operation.size > PARTIAL_SUMS:
            with self.e.loop(0, whole, lanes, "vector") as start:
                self._vector(start, lanes, inside=False)
        else:
            first = min(-(-self.before // lanes) * lanes, whole)
            last = max((self.length - after) // lanes * lanes, first)
            for start in range(0, first, lanes):
                self._vector(start, lanes, inside=False)
            with self.e.loop(first, last, lanes, "vector") as start:
                self._vector(start, lanes, inside=True)
            for start in range(last, whole, lanes):
                self._vector(start, lanes, inside=False)
        if self.length > whole:
            self._vector(whole, self.length - whole, inside=False)

    def _vector(self, start: Index, count: int, inside: bool) -> None:
        """Emit `count` results from `start` on; `inside`: no neighbour is beyond an end."""
        e, b, operation = self.e, self.e.b, self.operation
        kind = vec(F32, self.lanes)
        factor = scalar(kind, float(response_factor(operation.alpha, operation.size)))
        total = b.fadd(b.fmul(self._sum(start, inside), factor), scalar(kind, operation.bias))
        place = e.scaled(start, ELEMENT_BYTES)
        x = e.load_lanes(e.offset(self.src, place), F32, self.lanes, count)
        result = b.fdiv(x, emit_scalar(e, PowerOf(operation.beta).real, total))
        e.store_lanes(result, e.offset(self.dest, place), count)

    def _sum(self, start: Index, inside: bool) -> Value:
        """Sum up the squares in every element's window, in the order of rule 9 of the numeric contract."""
        e, size = self.e, self.operation.size
        first = e.plus(start, -self.before)
        sums: list[Value] = [scalar(vec(F32, self.lanes), 0.0)] * PARTIAL_SUMS
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
        x = e.load_lanes(place, F32, self.lanes) if inside else e.load_where(place, F32, self._mask(at))
        return e.b.fmul(x, x)

    def _mask(self, at: Index) -> Value:
        """Mask of the elements from `at` on that are between both ends."""
        if isinstance(at, int):
            return constant_vector(I1, [int(0 <= at + lane < self.length) for lane in range(self.lanes)])
        here = self.e.splat(at, self.lanes)
        places = self.e.b.add(here, constant_vector(I64, range(self.lanes)))
        return self.e.b.icmp_unsigned("<", places, scalar(here.type, self.length))


@candidates_for(LocalResponse)
def local_response_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the one kernel."""
    return [Neighbours()]
