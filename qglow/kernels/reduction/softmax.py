"""Softmax in three passes: the maximum, exponentials with their 16 partial sums, the division.

The logarithm of it subtracts in the third pass instead of dividing, so the exponentials are not stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.ops.softmax import Softmax
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.scalar import emit_scalar
from qglow.kernels.emit.builder import F32, I1, Index, Value, constant_vector, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import dense_strides
from qglow.kernels.emit.target import VectorTarget
from qglow.numerics.reductions import PARTIAL_SUMS
from qglow.numerics.scalar.polynomials import exp_of_negative, log

LANES = PARTIAL_SUMS
"""Elements of a vector: the numeric contract has 16 partial sums (rule 9), so every target uses 16 lanes."""
NEGATIVE_INFINITY = float("-inf")
ROW_REGISTERS = 4
"""Registers of exponentials in a step of `softmax_rows`: operations on one wait for each other."""
_ROW = vec(F32, LANES)


@dataclass(frozen=True)
class _NormalizedExponentials(Kernel):
    """Base of both kernels, which have the same cost."""

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles by the number of vectors."""
        return instruction.operand("dest").type.size / target.float_lanes * target.model.loops.softmax_vector


@kernel
@dataclass(frozen=True)
class SoftmaxAlong(_NormalizedExponentials):
    """Softmax along the contiguous axis: lane i of a vector is partial sum i."""

    name: ClassVar[str] = "softmax-along"
    limits_live: ClassVar[bool] = True

    def emit(self, site: Site) -> None:
        """Emit a loop over rows, which threads share; each row takes all three passes in turn."""
        e, dest, src = site.e, site["dest"], site["src"]
        if not dest.type.size:
            return
        length = dest.shape[site.operation.axis]
        rows = dest.type.size // length
        with e.live_rows(rows, length) as row:
            step = e.scaled(row, length * 4)
            to, start = e.offset(dest.pointer, step), e.offset(src.pointer, step)
            operation: Softmax = site.operation
            # Behind what is live, the row has what adds nothing: -inf.
            vectors = e.live_pieces(length // LANES, LANES, length)
            softmax_row(e, to, start, length, operation.logarithm, operation.masked_to_zero, vectors)


def softmax_row(
    e: Emitter,
    dest: Value,
    src: Value,
    length: int,
    logarithm: bool,
    masked_to_zero: bool,
    vectors: Index,
) -> None:
    """Emit Softmax of the `length` contiguous floats at `src`.

    vectors: how many whole vectors of 16 matter, and with them what follows the whole ones.
    """
    kind = vec(F32, LANES)

    def load(pointer: Value, at: Index, count: int | None) -> Value:
        return e.load_lanes(e.offset(pointer, e.scaled(at, 4)), F32, LANES, count)

    def larger(values: list[Value], at: Index, count: int | None) -> list[Value]:
        x = keep(e, load(src, at, count), count, NEGATIVE_INFINITY)
        return [emit_larger(e, x, values[0])]

    # The maximum is subtracted first, so that no exponential is above 1 and none overflows.
    lanes = fold_vectors(e, length, vectors, [scalar(kind, NEGATIVE_INFINITY)], larger)[0]
    top = e.splat(reduce_lanes(e, lanes, lambda a, b: emit_larger(e, a, b)), LANES)

    def exponentials(values: list[Value], at: Index, count: int | None) -> list[Value]:
        power = emit_scalar(e, exp_of_negative, e.b.fsub(load(src, at, count), top))
        if not logarithm:
            e.store_lanes(power, e.offset(dest, e.scaled(at, 4)), count)
        return [e.b.fadd(values[0], keep(e, power, count, 0.0))]

    # Lane i adds up elements i, i + 16, ..., then halves join: the one order that the contract allows.
    sums = fold_vectors(e, length, vectors, [scalar(kind, 0.0)], exponentials)[0]
    total = e.splat(reduce_lanes(e, sums, e.b.fadd), LANES)
    logarithm_of_total = emit_scalar(e, log, total) if logarithm else None

    def finish(values: list[Value], at: Index, count: int | None) -> list[Value]:
        if logarithm:
            result = e.b.fsub(e.b.fsub(load(src, at, count), top), logarithm_of_total)
        else:
            result = emit_share(e, load(dest, at, count), total, masked_to_zero)
        e.store_lanes(result, e.offset(dest, e.scaled(at, 4)), count)
        return []

    fold_vectors(e, length, vectors, [], finish)


def softmax_rows(
    e: Emitter, start: Value, step: int, rows: Index, length: Index, masked_to_zero: bool = False
) -> None:
    """Emit Softmax, in place, of one or more rows of `length` floats (a multiple of 16), `step` bytes apart.

    The exponentials of a row are computed while the row before it is divided and the maximum of the next one
    is found: the three wait for different units of a processor. Every row has the bits of `softmax_row`.
    """
    work = _SoftmaxRows(e, length, masked_to_zero)

    def row(number: Index) -> Value:
        return e.offset(start, e.scaled(number, step))

    last = e.plus(rows, -1)
    found = work.exponentials(start, row(e.minimum(1, last)), work.largest(start), None)
    if last != 0:
        with e.carrying_loop(1, rows, found, name="row") as carry:
            total, top = carry.values
            # Behind the last row there is none: what is found for it then is not used.
            following = row(e.minimum(e.plus(carry.index, 1), last))
            before = row(e.plus(carry.index, -1)), total
            carry.next(work.exponentials(row(carry.index), following, top, before))
        found = carry.values
    work.divide_all(row(last), found[0])


@dataclass(frozen=True)
class _SoftmaxRows:
    """Emitter of the steps of `softmax_rows`. Results of a row are in all lanes of a vector."""

    e: Emitter
    length: Index
    masked_to_zero: bool

    def largest(self, row: Value) -> Value:
        """Emit the maximum of a row."""
        e = self.e
        with e.carrying_loop(0, self.length, [scalar(_ROW, NEGATIVE_INFINITY)], LANES, "vector") as carry:
            carry.next([emit_larger(e, self._load(row, carry.index), carry.values[0])])
        return _in_all_lanes(e, carry.values[0], lambda a, b: emit_larger(e, a, b))

    def divide_all(self, row: Value, total: Value) -> None:
        """Emit the division of a whole row."""
        with self.e.loop(0, self.length, LANES, "vector") as at:
            self._divide(row, at, total)

    def exponentials(
        self, row: Value, following: Value, top: Value, before: tuple[Value, Value] | None
    ) -> list[Value]:
        """Emit the exponentials of a row below its maximum: their sum, and the maximum of the following row.

        before: the row to divide on the way, and by what.
        """
        e = self.e
        found = [scalar(_ROW, 0.0), scalar(_ROW, NEGATIVE_INFINITY)]
        for start, stop, vectors in self._spans():
            with e.carrying_loop(start, stop, found, vectors * LANES, "vector") as carry:
                sums, larger = carry.values
                places = [e.plus(carry.index, v * LANES) for v in range(vectors)]
                for at in places:
                    larger = emit_larger(e, self._load(following, at), larger)
                below = e.concat([e.b.fsub(self._load(row, at), top) for at in places])
                powers = emit_scalar(e, exp_of_negative, below)
                if before is not None:
                    for at in places:
                        self._divide(before[0], at, before[1])
                for number, at in enumerate(places):
                    power = e.shuffle(powers, None, range(number * LANES, number * LANES + LANES))
                    e.store(power, e.offset(row, e.scaled(at, 4)))
                    sums = e.b.fadd(sums, power)
                carry.next([sums, larger])
            found = carry.values
        sums, larger = found
        return [_in_all_lanes(e, sums, e.b.fadd), _in_all_lanes(e, larger, lambda a, b: emit_larger(e, a, b))]

    def _spans(self) -> list[tuple[Index, Index, int]]:
        """Ranges of a row with the vectors of a step: as many as are worth it, then what is left."""
        e, length = self.e, self.length
        most = max(1, ROW_REGISTERS * e.target.float_lanes // LANES)
        wide = most * LANES
        whole = length // wide * wide if isinstance(length, int) else e.b.and_(length, e.index(-wide))
        if not isinstance(length, int):
            return [(0, whole, most), *([(whole, length, 1)] if most > 1 else [])]
        spans: list[tuple[Index, Index, int]] = [(0, whole, most)] if whole else []
        while whole < length:  # powers of two: vectors are joined in pairs
            count = 1 << (((length - whole) // LANES).bit_length() - 1)
            spans.append((whole, whole + count * LANES, count))
            whole += count * LANES
        return spans

    def _divide(self, row: Value, at: Index, total: Value) -> None:
        share = emit_share(self.e, self._load(row, at), total, self.masked_to_zero)
        self.e.store(share, self.e.offset(row, self.e.scaled(at, 4)))

    def _load(self, row: Value, at: Index) -> Value:
        return self.e.load(self.e.offset(row, self.e.scaled(at, 4)), _ROW)


def _in_all_lanes(e: Emitter, value: Value, combine: Callable[[Value, Value], Value]) -> Value:
    """Combine all lanes, and broadcast the result to them."""
    return e.splat(reduce_lanes(e, value, combine), LANES)


def fold_vectors(
    e: Emitter,
    length: int,
    vectors: Index,
    initial: list[Value],
    step: Callable[[list[Value], Index, int | None], list[Value]],
) -> list[Value]:
    """`values = step(values, start, count)` over vectors of a row, the last of which may be partial.

    vectors: how many of the whole ones are gone through.
    """
    values, whole = initial, length // LANES * LANES
    if whole:
        with e.carrying_loop(0, e.scaled(vectors, LANES), initial, LANES, "vector") as carry:
            carry.next(step(list(carry.values), carry.index, None))
        values = carry.values
    if length > whole:
        values = step(list(values), whole, length - whole)
    return values


def emit_share(e: Emitter, power: Value, total: Value, masked_to_zero: bool) -> Value:
    """Divide: a product with the reciprocal gives other bits. A row of NaN gives zeros, where wanted."""
    share = e.b.fdiv(power, total)
    if not masked_to_zero:
        return share
    return e.b.select(e.b.fcmp_unordered("uno", total, total), scalar(share.type, 0.0), share)


def keep(e: Emitter, value: Value, count: int | None, otherwise: float) -> Value:
    """Keep the first `count` lanes and set the others to a constant."""
    if count is None:
        return value
    mask = constant_vector(I1, [int(lane < count) for lane in range(value.type.count)])
    return e.b.select(mask, value, scalar(value.type, otherwise))


def emit_larger(e: Emitter, a: Value, b: Value) -> Value:
    """`a > b ? a : b`. A NaN may get lost here: it comes back through the sum."""
    return e.b.select(e.b.fcmp_ordered(">", a, b), a, b)


def reduce_lanes(e: Emitter, value: Value, combine: Callable[[Value, Value], Value]) -> Value:
    """Combine all lanes into one scalar: the upper half with the lower half until one lane is left."""
    while value.type.count > 1:
        half = value.type.count // 2
        low, high = (e.shuffle(value, None, range(s, s + half)) for s in (0, half))
        value = combine(low, high)
    return e.extract(value, 0)


@kernel
@dataclass(frozen=True)
class SoftmaxAcross(_NormalizedExponentials):
    """Softmax along an axis that is not the last: vectors of 16 columns, 16 of them for partial sums."""

    name: ClassVar[str] = "softmax-across"

    def emit(self, site: Site) -> None:
        """Emit a loop over indices before the axis, and in it one over vectors of elements behind it."""
        e, dest, src = site.e, site["dest"], site["src"]
        if not dest.type.size:
            return
        axis = site.operation.axis % len(dest.shape)
        extent, inner = dest.shape[axis], dense_strides(dest.shape)[axis]
        outer = dest.type.size // (extent * inner)
        whole = inner // LANES * LANES
        with e.loop(0, outer, name="outer") as index:
            step = e.scaled(index, extent * inner * 4)
            to, start = e.offset(dest.pointer, step), e.offset(src.pointer, step)
            for first, last, count in ((0, whole, None), (whole, inner, inner - whole)):
                if first == last:
                    continue
                with e.loop(first, last, LANES, "inner") as at:
                    move = e.scaled(at, 4)
                    places = e.offset(to, move), e.offset(start, move)
                    _Columns(e, *places, extent, inner * 4, count, site.operation).emit()


@dataclass(frozen=True)
class _Columns:
    """Emitter of 16 neighbouring columns, or of the first `count` of them."""

    e: Emitter
    dest: Value
    src: Value
    extent: int
    stride: int
    count: int | None
    operation: Softmax

    def emit(self) -> None:
        """Emit the three passes down the columns."""
        e, kind = self.e, vec(F32, LANES)

        def larger(values: list[Value], at: Index, _: int) -> list[Value]:
            return [emit_larger(e, self._load(self.src, at), values[0])]

        top = self._fold([scalar(kind, NEGATIVE_INFINITY)], larger, 1)[0]

        def exponentials(values: list[Value], at: Index, index: int) -> list[Value]:
            power = emit_scalar(e, exp_of_negative, e.b.fsub(self._load(self.src, at), top))
            if not self.operation.logarithm:
                self._store(power, at)
            return [e.b.fadd(v, power) if i == index else v for i, v in enumerate(values)]

        # Row i is added to sum i mod 16: the order of the sums is the same as along the last axis.
        sums = self._fold([scalar(kind, 0.0)] * PARTIAL_SUMS, exponentials, PARTIAL_SUMS)
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [e.b.fadd(sums[i], sums[half + i]) for i in range(half)]
        total = emit_scalar(e, log, sums[0]) if self.operation.logarithm else sums[0]
        masked = self.operation.masked_to_zero
        with e.loop(0, self.extent, name="finish") as at:
            if self.operation.logarithm:
                self._store(e.b.fsub(e.b.fsub(self._load(self.src, at), top), total), at)
            else:
                self._store(emit_share(e, self._load(self.dest, at), total, masked), at)

    def _fold(
        self, initial: list[Value], step: Callable[[list[Value], Index, int], list[Value]], period: int
    ) -> list[Value]:
        """`values = step(values, row, row mod period)` over all rows."""
        values, whole = initial, self.extent // period * period
        if whole:
            with self.e.carrying_loop(0, whole, initial, period, "row") as carry:
                inside = list(carry.values)
                for part in range(period):
                    inside = step(inside, self.e.plus(carry.index, part), part)
                carry.next(inside)
            values = carry.values
        for row in range(whole, self.extent):
            values = step(list(values), row, row - whole)
        return values

    def _load(self, base: Value, row: Index) -> Value:
        return self.e.load_lanes(self._at(base, row), F32, LANES, self.count)

    def _store(self, value: Value, row: Index) -> None:
        self.e.store_lanes(value, self._at(self.dest, row), self.count)

    def _at(self, base: Value, row: Index) -> Value:
        return self.e.offset(base, self.e.scaled(row, self.stride))


@candidates_for(Softmax)
def softmax_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return `SoftmaxAlong` if no elements lie behind the axis, else `SoftmaxAcross`."""
    shape = instruction.operand("dest").type.shape
    axis = instruction.operation.axis % len(shape)  # type: ignore[attr-defined]
    inner = math.prod(shape[axis + 1 :])
    return [SoftmaxAlong() if inner == 1 else SoftmaxAcross()]
