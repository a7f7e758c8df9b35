"""Rows standardized by their own mean and variance: passes over a row that is in the first-level cache.

Every sum has the 16 parts of the numeric contract (rule 9), as single reductions have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.ops.normalization import Standardize
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.scalar import emit_scalar
from qglow.kernels.emit.builder import F32, Index, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import CodeSize, VectorTarget
from qglow.kernels.reduction.softmax import LANES, fold_vectors, keep, reduce_lanes
from qglow.numerics.scalar.algebra import sqrt

ELEMENT_BYTES = 4
ROWS_TOGETHER = 4
"""Rows that are computed at once where code may be large."""
_KIND = vec(F32, LANES)


@kernel
@dataclass(frozen=True)
class StandardizedRows(Kernel):
    """Mean, variance and results of one row after the other."""

    name: ClassVar[str] = "standardize"
    limits_live: ClassVar[bool] = True

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles by the number of vectors."""
        loops, size = target.model.loops, instruction.operand("src").type.size
        return size / target.float_lanes * (2 * loops.reduced_vector + loops.elementwise_vector)

    def emit(self, site: Site) -> None:
        """Emit a loop over a few rows at a time, which threads share."""
        e, dest, (rows, length) = site.e, site["dest"], site["src"].shape
        if not dest.type.size:
            return
        together = ROWS_TOGETHER if e.target.size is CodeSize.FAST else 1
        blocks, rest = divmod(rows, together)
        share = e.share(blocks + rest, True)
        whole = blocks * together
        for start, first, turns, height in ((0, 0, blocks, together), (whole, blocks, rest, 1)):
            if not turns:
                continue
            count = e.live_pieces(turns, height * length, rows * length, start * length)
            with e.shared_loop(share, first, count, "rows") as number:
                row = e.plus(e.scaled(number, height), start)
                _Rows(site, e.scaled(row, length * ELEMENT_BYTES), height, length).emit()


@dataclass(frozen=True)
class _Rows:
    """Emitter of `height` rows of `length` elements, from byte `place` of both operands on.

    Each row has sums that wait for their last addition, so several take turns.
    """

    site: Site
    place: Index
    height: int
    length: int

    @property
    def e(self) -> Emitter:
        return self.site.e

    def emit(self) -> None:
        """Emit both statistics, and the results by them."""
        e, operation = self.e, self.site.operation
        means: list[Value] = []
        if operation.centres:
            means = [e.splat(mean, LANES) for mean in self._means(lambda x: x, [])]
        factors = []
        for variance in self._means(lambda x: e.b.fmul(x, x), means):
            root = emit_scalar(e, sqrt, e.b.fadd(variance, scalar(F32, operation.epsilon)))
            factors.append(root if operation.divides else e.b.fdiv(scalar(F32, 1.0), root))
        self._finish(means, [e.splat(factor, LANES) for factor in factors])

    def _means(self, term: Callable[[Value], Value], means: list[Value]) -> list[Value]:
        """Emit the mean of the terms of all elements of each row, less its mean where there are `means`."""
        e = self.e

        def add(values: list[Value], at: Index, count: int | None) -> list[Value]:
            terms = [term(self._centred(row, at, count, means)) for row in range(self.height)]
            kept = [keep(e, each, count, 0.0) for each in terms]
            return [e.b.fadd(*pair) for pair in zip(values, kept, strict=True)]

        sums = self._fold([scalar(_KIND, 0.0)] * self.height, add)
        return [e.b.fdiv(reduce_lanes(e, s, e.b.fadd), scalar(F32, float(self.length))) for s in sums]

    def _finish(self, means: list[Value], factors: list[Value]) -> None:
        """Emit the results."""
        e, site = self.e, self.site

        def store(values: list[Value], at: Index, count: int | None) -> list[Value]:
            rows = {
                name: self._load(site[name].pointer, e.scaled(at, ELEMENT_BYTES), count)
                for name in ("scale", "shift")
                if name in site.operands
            }
            for row, factor in enumerate(factors):
                x = self._centred(row, at, count, means)
                result = e.b.fdiv(x, factor) if site.operation.divides else e.b.fmul(x, factor)
                result = e.b.fmul(result, rows["scale"]) if "scale" in rows else result
                result = e.b.fadd(result, rows["shift"]) if "shift" in rows else result
                e.store_lanes(result, e.offset(site["dest"].pointer, self._at(row, at)), count)
            return []

        self._fold([], store)

    def _centred(self, row: int, at: Index, count: int | None, means: list[Value]) -> Value:
        x = self._load(self.site["src"].pointer, self._at(row, at), count)
        return self.e.b.fsub(x, means[row]) if means else x

    def _at(self, row: int, at: Index) -> Index:
        """Bytes from the start of an operand to an element of a row."""
        e = self.e
        return e.plus(e.plus(self.place, e.scaled(at, ELEMENT_BYTES)), row * self.length * ELEMENT_BYTES)

    def _load(self, start: Value, at: Index, count: int | None) -> Value:
        return self.e.load_lanes(self.e.offset(start, at), F32, LANES, count)

    def _fold(
        self, initial: list[Value], step: Callable[[list[Value], Index, int | None], list[Value]]
    ) -> list[Value]:
        return fold_vectors(self.e, self.length, self.length // LANES, initial, step)


@candidates_for(Standardize)
def standardized_rows(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the one kernel."""
    return [StandardizedRows()]
