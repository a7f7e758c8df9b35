"""Reductions along an axis: with vectors along it if it is the last, else with vectors across it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import ElementType
from qglow.instructions.ops.reduce import Reduce
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import F32, I8, Index, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import Memory
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.reduction.softmax import keep, reduce_lanes
from qglow.numerics.reductions import PARTIAL_SUMS

LANES = PARTIAL_SUMS


@dataclass(frozen=True)
class Combination:
    """Way to combine two partial results, with their initial value and their number for a row."""

    start: float
    combine: Callable[[Value, Value], Value]
    parts: int


def combination(e: Emitter, kind: str, memory: Memory) -> Combination:
    """Combination for a kind of reduction of an operand; int8 is compared as the target holds it."""
    if not (memory.is_float or memory.type.is_quantized):
        return _of_numbers(e, kind, memory.type.element)
    element = memory.element
    # Float sums and products depend on the order, so they have the 16 parts of the numeric contract (rule 9).
    # Extremes do not: one part will do.
    if kind in ("sum", "mean"):
        return Combination(0.0, e.b.fadd, PARTIAL_SUMS)
    if kind == "prod":
        return Combination(1.0, e.b.fmul, PARTIAL_SUMS)
    if element != F32:
        sort, ends = "s", (-(1 << 15), (1 << 15) - 1)
        if element == I8:
            # A bias keeps the order of activations, so bytes are compared as they are held.
            sort, ends = e.target.byte_sort, (e.target.smallest_byte, e.target.largest_byte)
        name, least = f"llvm.{sort}{kind}", ends[kind == "min"]
        return Combination(least, lambda a, b: e.intrinsic(name, a, b), 1)
    sign, start = (">", -math.inf) if kind == "max" else ("<", math.inf)
    return Combination(start, lambda a, b: _winner(e, sign, a, b), 1)


def _of_numbers(e: Emitter, kind: str, element: ElementType) -> Combination:
    """Combination of plain integers or booleans."""
    if kind == "sum":
        return Combination(0, e.b.add, 1)
    if kind == "prod":
        return Combination(1, e.b.mul, 1)
    bits = 8 * element.size
    low, high = (0, (1 << bits) - 1) if element.is_unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    name = f"llvm.{'u' if element.is_unsigned else 's'}{kind}"
    start = high if kind == "min" else low
    if element is ElementType.BOOL:
        start = int(kind == "min")
    return Combination(start, lambda a, b: e.intrinsic(name, a, b), 1)


def _winner(e: Emitter, sign: str, a: Value, b: Value) -> Value:
    """`a` where the relation holds, else `b`; NaN where either is."""
    better = e.b.select(e.b.fcmp_ordered(sign, a, b), a, b)
    return e.b.select(e.b.fcmp_unordered("uno", a, a), a, better)


def finished(site: Site, total: Value) -> Value:
    """Turn a combined value into the result: a sum is divided for a mean, others stay."""
    if site.operation.kind != "mean":
        return total
    return site.e.b.fdiv(total, scalar(total.type, site["src"].shape[1]))


@kernel
@dataclass(frozen=True)
class ReduceAlong(Kernel):
    """Reduction along contiguous rows: lane i of a vector is partial result i."""

    name: ClassVar[str] = "reduce-along"
    limits_live: ClassVar[bool] = True
    uses_scales: ClassVar[bool] = False

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles by the number of vectors."""
        return instruction.operand("src").type.size / LANES * target.model.loops.reduced_vector

    def emit(self, site: Site) -> None:
        """Emit a loop over rows, which threads share: vectors are combined first, then the lanes of one."""
        e, dest, src = site.e, site["dest"], site["src"]
        rows, extent, _ = src.shape
        if not rows:
            return
        how = combination(e, site.operation.kind, src)
        with e.live_rows(rows, 1) as row:
            start = e.offset(src.pointer, e.scaled(row, extent * src.element_bytes))
            lanes = self._lanes(site, start, extent, how)
            result = finished(site, reduce_lanes(e, lanes, how.combine))
            e.store(result, e.offset(dest.pointer, e.scaled(row, dest.element_bytes)))

    def _lanes(self, site: Site, row: Value, extent: int, how: Combination) -> Value:
        e, src = site.e, site["src"]
        whole = extent // LANES * LANES
        value = scalar(vec(src.element, LANES), how.start)

        def load(at: Index, count: int | None) -> Value:
            return e.load_lanes(e.offset(row, e.scaled(at, src.element_bytes)), src.element, LANES, count)

        if whole:
            with e.carrying_loop(0, whole, [value], LANES, "vector") as carry:
                carry.next([how.combine(carry.values[0], load(carry.index, None))])
            value = carry.values[0]
        if extent > whole:
            count = extent - whole
            value = how.combine(value, keep(e, load(whole, count), count, how.start))
        return value


@kernel
@dataclass(frozen=True)
class ReduceAcross(Kernel):
    """Reduction along an axis that is not the last: each partial result is a vector of columns."""

    name: ClassVar[str] = "reduce-across"
    limits_live: ClassVar[bool] = True
    uses_scales: ClassVar[bool] = False

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles by the number of vectors."""
        return instruction.operand("src").type.size / LANES * target.model.loops.reduced_vector

    def emit(self, site: Site) -> None:
        """Emit loops over the outer axes and over blocks of 16 columns, the last of which may be partial.

        A block goes down all rows before the next one starts, so each result is stored once.
        """
        e, dest, src = site.e, site["dest"], site["src"]
        outer, extent, inner = src.shape
        size, whole = src.element_bytes, inner // LANES * LANES
        if not outer:
            return
        with e.live_rows(outer, inner) as index:
            start = e.offset(src.pointer, e.scaled(index, extent * inner * size))
            to = e.offset(dest.pointer, e.scaled(index, inner * size))
            for first, last, count in ((0, whole, None), (whole, inner, inner - whole)):
                if first == last:
                    continue
                with e.loop(first, last, LANES, "inner") as at:
                    move = e.scaled(at, size)
                    total = self._columns(site, e.offset(start, move), count)
                    e.store_lanes(finished(site, total), e.offset(to, move), count)

    def _columns(self, site: Site, start: Value, count: int | None) -> Value:
        e, src = site.e, site["src"]
        how = combination(e, site.operation.kind, src)
        _, extent, inner = src.shape

        def step(values: list[Value], row: Index, part: int) -> list[Value]:
            place = e.offset(start, e.scaled(row, inner * src.element_bytes))
            values[part] = how.combine(values[part], e.load_lanes(place, src.element, LANES, count))
            return values

        values = [scalar(vec(src.element, LANES), how.start)] * how.parts
        whole = extent // how.parts * how.parts
        if whole:
            with e.carrying_loop(0, whole, values, how.parts, "row") as carry:
                inside = list(carry.values)
                for part in range(how.parts):
                    inside = step(inside, e.plus(carry.index, part), part)
                carry.next(inside)
            values = list(carry.values)
        for row in range(whole, extent):
            values = step(list(values), row, row - whole)
        while len(values) > 1:
            half = len(values) // 2
            values = [how.combine(values[i], values[half + i]) for i in range(half)]
        return values[0]


@candidates_for(Reduce)
def reduce_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return `ReduceAlong` if no elements lie behind the axis, else `ReduceAcross`."""
    inner = instruction.operand("src").type.shape[2]
    return [ReduceAlong() if inner == 1 else ReduceAcross()]
