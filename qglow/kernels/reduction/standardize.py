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
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.reduction.softmax import LANES, fold_vectors, keep, reduce_lanes
from qglow.numerics.scalar.algebra import sqrt

ELEMENT_BYTES = 4
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
        """Emit a loop over rows, which threads share."""
        e, dest, src = site.e, site["dest"], site["src"]
        rows, length = src.shape
        if not dest.type.size:
            return
        with e.live_rows(rows, length) as row:
            step = e.scaled(row, length * ELEMENT_BYTES)
            _Row(site, e.offset(src.pointer, step), e.offset(dest.pointer, step), length).emit()


@dataclass(frozen=True)
class _Row:
    """Emitter of a row of `length` elements at `src`, with results at `dest`."""

    site: Site
    src: Value
    dest: Value
    length: int

    @property
    def e(self) -> Emitter:
        return self.site.e

    def emit(self) -> None:
        """Emit both statistics, and the results by them."""
        e, operation = self.e, self.site.operation
        mean = e.splat(self._mean(lambda x: x, None), LANES) if operation.centres else None
        variance = self._mean(lambda x: e.b.fmul(x, x), mean)
        root = emit_scalar(e, sqrt, e.b.fadd(variance, scalar(F32, operation.epsilon)))
        factor = root if operation.divides else e.b.fdiv(scalar(F32, 1.0), root)
        self._finish(mean, e.splat(factor, LANES))

    def _mean(self, term: Callable[[Value], Value], mean: Value | None) -> Value:
        """Emit the mean of the terms of all elements, less `mean` if there is one."""
        e = self.e

        def add(values: list[Value], at: Index, count: int | None) -> list[Value]:
            return [e.b.fadd(values[0], keep(e, term(self._centred(at, count, mean)), count, 0.0))]

        parts = self._fold([scalar(_KIND, 0.0)], add)[0]
        return e.b.fdiv(reduce_lanes(e, parts, e.b.fadd), scalar(F32, float(self.length)))

    def _finish(self, mean: Value | None, factor: Value) -> None:
        """Emit the results."""
        e, site = self.e, self.site

        def store(values: list[Value], at: Index, count: int | None) -> list[Value]:
            result = self._centred(at, count, mean)
            result = e.b.fdiv(result, factor) if site.operation.divides else e.b.fmul(result, factor)
            for name, combine in (("scale", e.b.fmul), ("shift", e.b.fadd)):
                if name in site.operands:
                    result = combine(result, self._load(site[name].pointer, at, count))
            e.store_lanes(result, e.offset(self.dest, e.scaled(at, ELEMENT_BYTES)), count)
            return []

        self._fold([], store)

    def _centred(self, at: Index, count: int | None, mean: Value | None) -> Value:
        x = self._load(self.src, at, count)
        return x if mean is None else self.e.b.fsub(x, mean)

    def _load(self, start: Value, at: Index, count: int | None) -> Value:
        e = self.e
        return e.load_lanes(e.offset(start, e.scaled(at, ELEMENT_BYTES)), F32, LANES, count)

    def _fold(
        self, initial: list[Value], step: Callable[[list[Value], Index, int | None], list[Value]]
    ) -> list[Value]:
        return fold_vectors(self.e, self.length, self.length // LANES, initial, step)


@candidates_for(Standardize)
def standardized_rows(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the one kernel."""
    return [StandardizedRows()]
