"""Reductions along an axis: vectors along it where it is the last, else vectors across."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from qglow.instructions.ops.reduce import Reduce
from qglow.instructions.program import Instruction
from qglow.kernels.builder import F32, I8, Emitter, Index, Value, scalar, vec
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.softmax import keep, reduce_lanes
from qglow.numerics.reductions import PARTIAL_SUMS

LANES = PARTIAL_SUMS
CYCLES_A_VECTOR = 4.0


@dataclass(frozen=True)
class Combination:
    """How two partial results become one, from what they start, and into how many parts rows go."""

    start: float
    combine: Callable[[Value, Value], Value]
    parts: int


def combination(e: Emitter, kind: str, element: Any) -> Combination:
    """That of a kind of reduction, of elements of this LLVM type. int8 is bytes, of which none is below 0."""
    if kind in ("sum", "mean"):
        return Combination(0.0, e.b.fadd, PARTIAL_SUMS)
    if kind == "prod":
        return Combination(1.0, e.b.fmul, PARTIAL_SUMS)
    if element != F32:
        sort = "u" if element == I8 else "s"
        ends = (0, -1) if element == I8 else (-(1 << 15), (1 << 15) - 1)
        name, least = f"llvm.{sort}{kind}", ends[kind == "min"]
        return Combination(least, lambda a, b: e.intrinsic(name, a, b), 1)
    sign, start = (">", -math.inf) if kind == "max" else ("<", math.inf)
    return Combination(start, lambda a, b: _winner(e, sign, a, b), 1)


def _winner(e: Emitter, sign: str, a: Value, b: Value) -> Value:
    """`a` where the relation holds, else `b`; NaN where either is."""
    better = e.b.select(e.b.fcmp_ordered(sign, a, b), a, b)
    return e.b.select(e.b.fcmp_unordered("uno", a, a), a, better)


def finished(site: Site, total: Value) -> Value:
    """The result of what was combined: a mean is a sum divided."""
    if site.operation.kind != "mean":
        return total
    return site.e.b.fdiv(total, scalar(total.type, site["src"].shape[1]))


@kernel
@dataclass(frozen=True)
class ReduceAlong(Kernel):
    """Along contiguous rows: lane i of a vector is part i."""

    name: ClassVar[str] = "reduce-along"
    uses_scales: ClassVar[bool] = False

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Vectors of 16."""
        return instruction.operand("src").type.size / LANES * CYCLES_A_VECTOR

    def emit(self, site: Site) -> None:
        """One row after the other."""
        e, dest, src = site.e, site["dest"], site["src"]
        rows, extent, _ = src.shape
        if not rows:
            return
        how = combination(e, site.operation.kind, src.element)
        with e.loop(*e.share(rows), name="row") as row:
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
    """Along another axis than the last: vectors of neighbours, as many of them as there are parts."""

    name: ClassVar[str] = "reduce-across"
    uses_scales: ClassVar[bool] = False

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Vectors of 16."""
        return instruction.operand("src").type.size / LANES * CYCLES_A_VECTOR

    def emit(self, site: Site) -> None:
        """Blocks of 16 columns, the last one cut."""
        e, dest, src = site.e, site["dest"], site["src"]
        outer, extent, inner = src.shape
        size, whole = src.element_bytes, inner // LANES * LANES
        if not outer:
            return
        with e.loop(*e.share(outer), name="outer") as index:
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
        how = combination(e, site.operation.kind, src.element)
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
def reduce_candidates(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """By whether anything but single elements lies behind the axis."""
    inner = instruction.operand("src").type.shape[2]
    return [ReduceAlong() if inner == 1 else ReduceAcross()]
