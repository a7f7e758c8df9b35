"""Scales of rows: the largest bits of absolute values, compared as integers, in one pass over each row.

A second pass over the row, which is near then, makes integers of it where these are wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.ops.rows import QuantizeRows, RowScales
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.quotients import safe_reciprocal, saves_divisions
from qglow.kernels.arithmetic.requantize import integer_range, quantize_by
from qglow.kernels.emit.builder import F32, I32, Index, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.reduction.softmax import reduce_lanes
from qglow.numerics.rows import INFINITE, LARGEST, LEAST_SCALE, MAGNITUDE, NO_NUMBER

ELEMENT_BYTES = 4
ROW_REGISTERS = 2
"""Registers of a vector of integers: one check serves all of them."""


@kernel
@dataclass(frozen=True)
class LargestOfRows(Kernel):
    """Scale of each row, from vectors of its elements."""

    name: ClassVar[str] = "rowscales"
    limits_live: ClassVar[bool] = True

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles by the number of vectors."""
        size = instruction.operand("src").type.size
        return size / target.loop_lanes * target.model.loops.reduced_vector

    def emit(self, site: Site) -> None:
        """Emit a loop over rows, which threads share."""
        e, dest, src = site.e, site["dest"], site["src"]
        rows, length = src.shape
        if not rows:
            return
        with e.live_rows(rows, 1) as row:
            start = e.offset(src.pointer, e.scaled(row, length * ELEMENT_BYTES))
            place = e.offset(dest.pointer, e.scaled(row, ELEMENT_BYTES))
            e.store(_scale(e, _largest(e, start, length)), place)


@kernel
@dataclass(frozen=True)
class IntegersOfRows(Kernel):
    """Scale of each row and its integers by it, from vectors of its elements."""

    name: ClassVar[str] = "quantizerows"
    limits_live: ClassVar[bool] = True

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles by the number of vectors."""
        loops, size = target.model.loops, instruction.operand("src").type.size
        return size / target.loop_lanes * (loops.reduced_vector + loops.elementwise_vector)

    def emit(self, site: Site) -> None:
        """Emit a loop over rows, which threads share."""
        e, dest, scales, src = site.e, site["dest"], site["scales"], site["src"]
        rows, length = src.shape
        if not rows:
            return
        result = integer_range(dest.type, dest.bias, -LARGEST, LARGEST)
        with e.live_rows(rows, length) as row:
            start = e.offset(src.pointer, e.scaled(row, length * ELEMENT_BYTES))
            to = e.offset(dest.pointer, e.scaled(row, length))
            scale = _scale(e, _largest(e, start, length))
            e.store(scale, e.offset(scales.pointer, e.scaled(row, ELEMENT_BYTES)))
            inverse = safe_reciprocal(e, scale) if saves_divisions(e) else None
            lanes = max(e.target.loop_lanes, ROW_REGISTERS * e.target.float_lanes)
            divisors = e.splat(scale, lanes)
            factors = None if inverse is None else e.splat(inverse, lanes)
            whole = length // lanes * lanes
            for first, stop, count in ((0, whole, None), (whole, length, length - whole)):
                if first == stop:
                    continue
                with e.loop(first, stop, lanes, "vector") as at:
                    x = e.load_lanes(e.offset(start, e.scaled(at, ELEMENT_BYTES)), F32, lanes, count)
                    e.store_lanes(quantize_by(e, x, divisors, factors, result), e.offset(to, at), count)


def _largest(e: Emitter, row: Value, length: int) -> Value:
    """Emit the largest bits of the absolute values in a row; those of zero if it has no elements."""
    lanes = e.target.loop_lanes
    kind = vec(I32, lanes)
    whole = length // lanes * lanes

    def larger(top: Value, at: Index, count: int | None) -> Value:
        # Lanes beyond the row are loaded as zeros. Without their sign, integers order as unsigned ones do.
        x = e.load_lanes(e.offset(row, e.scaled(at, ELEMENT_BYTES)), F32, lanes, count)
        bits = e.b.and_(e.b.bitcast(x, kind), scalar(kind, MAGNITUDE))
        return e.intrinsic("llvm.smax", top, bits)

    top: Value = scalar(kind, 0)
    if whole:
        with e.carrying_loop(0, whole, [top], lanes, "vector") as carry:
            carry.next([larger(carry.values[0], carry.index, None)])
        top = carry.values[0]
    if length > whole:
        top = larger(top, whole, length - whole)
    return reduce_lanes(e, top, lambda a, b: e.intrinsic("llvm.smax", a, b))


def _scale(e: Emitter, top: Value) -> Value:
    """Emit the scale of a row with these largest bits."""
    found = e.b.fdiv(e.b.bitcast(top, F32), scalar(F32, float(LARGEST)))
    least = scalar(F32, LEAST_SCALE)
    found = e.b.select(e.b.fcmp_ordered(">", found, least), found, least)
    broken = e.b.bitcast(scalar(I32, NO_NUMBER), F32)
    return e.b.select(e.b.icmp_signed("<", top, scalar(I32, INFINITE)), found, broken)


@candidates_for(QuantizeRows)
def integer_row_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the one kernel."""
    return [IntegersOfRows()]


@candidates_for(RowScales)
def row_scale_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the one kernel."""
    return [LargestOfRows()]
