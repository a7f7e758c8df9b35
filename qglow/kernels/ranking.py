"""The first elements along an axis: one pass over the row for each, which finds the best of the rest.

Elements become int32 keys that order as numerics.ranking.rank_keys does. A pass after the first
leaves out all that rank no later than what the pass before has found, so nothing is sorted or kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from qglow.instructions.ops.ranking import FirstIndices, FirstValues
from qglow.instructions.program import Instruction
from qglow.kernels.builder import I32, I64, Emitter, Index, Value, constant_vector, scalar, vec
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.requantize import widen_centred
from qglow.kernels.softmax import keep, reduce_lanes

LANES = 16
CYCLES_A_VECTOR = 6.0
NONE = -(1 << 31)
"""A key that no element has."""
LARGEST_INT = (1 << 31) - 1


@dataclass(frozen=True)
class Ranking:
    """What the two kernels share: keys of elements, and which of two ranks first."""

    site: Site

    @property
    def last(self) -> bool:
        """Whether of equal elements the one with the higher index ranks first."""
        return bool(getattr(self.site.operation, "last", False))

    @property
    def gives_values(self) -> bool:
        """Whether the result is elements, not their indices."""
        return isinstance(self.site.operation, FirstValues)

    def keys(self, x: Value) -> Value:
        """int32 keys of a vector of elements, which for integers are these themselves."""
        e, kind, largest = self.site.e, vec(I32, x.type.count), self.site.operation.largest
        if not self.site["src"].is_float:
            found = widen_centred(e, x, 0)
            return found if largest else e.b.not_(found)
        # Adding 0 makes -0 the 0 that it equals.
        bits = e.b.bitcast(e.b.fadd(x, scalar(x.type, 0.0)), kind)
        negative = e.b.ashr(bits, scalar(kind, 31))
        found = e.b.xor(bits, e.b.and_(negative, scalar(kind, LARGEST_INT)))
        if not largest:
            found = e.b.not_(found)
        return e.b.select(e.b.fcmp_unordered("uno", x, x), scalar(kind, LARGEST_INT), found)

    def rest(self, key: Value, index: Value, found: tuple[Value, Value] | None) -> Value:
        """The keys, without those that rank no later than the element with the key and index `found`."""
        if found is None:
            return key
        e, (best, place) = self.site.e, found
        after = e.b.icmp_signed("<" if self.last else ">", index, place)
        equal = e.b.and_(e.b.icmp_signed("==", key, best), after)
        return e.b.select(e.b.or_(e.b.icmp_signed("<", key, best), equal), key, scalar(key.type, NONE))

    def wins(self, key: Value, best: Value) -> Value:
        """Whether an element ranks before the best of those with lower indices."""
        return self.site.e.b.icmp_signed(">=" if self.last else ">", key, best)


def _before_all(last: bool, kind: Any) -> list[Value]:
    """A key and an index that rank before every element's."""
    return [scalar(kind, LARGEST_INT), scalar(kind, LARGEST_INT if last else -1)]


@kernel
@dataclass(frozen=True)
class RankAlong(Kernel):
    """Along contiguous rows: every lane finds its best, then the lanes are compared."""

    name: ClassVar[str] = "rank-along"
    uses_scales: ClassVar[bool] = False

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Vectors of 16, once for every element of the result."""
        return _cost(instruction)

    def emit(self, site: Site) -> None:
        """One row after the other."""
        e, dest, src, ranking = site.e, site["dest"], site["src"], Ranking(site)
        (rows, extent, _), count = src.shape, dest.shape[1]
        if not dest.type.size:
            return
        with e.loop(*e.share(rows), name="row") as row:
            start = e.offset(src.pointer, e.scaled(row, extent * src.element_bytes))
            to = e.offset(dest.pointer, e.scaled(row, count * dest.element_bytes))
            with e.carrying_loop(0, count, _before_all(ranking.last, I32), name="rank") as carry:
                found = None if count == 1 else _splats(e, carry.values)
                best, place = self._best(ranking, start, extent, found)
                wide = e.b.sext(place, I64)
                result = wide
                if ranking.gives_values:
                    result = e.load(e.offset(start, e.scaled(wide, src.element_bytes)), src.element)
                e.store(result, e.offset(to, e.scaled(carry.index, dest.element_bytes)))
                carry.next([best, place])

    def _best(
        self, ranking: Ranking, row: Value, extent: int, found: tuple[Value, Value] | None
    ) -> tuple[Value, Value]:
        """Key and index of the element of a row that ranks first, after `found`."""
        e, src = ranking.site.e, ranking.site["src"]
        kind, whole = vec(I32, LANES), extent // LANES * LANES

        def step(values: list[Value], at: Index, count: int | None) -> list[Value]:
            best, place = values
            x = e.load_lanes(e.offset(row, e.scaled(at, src.element_bytes)), src.element, LANES, count)
            here = e.splat(e.b.trunc(e.index(at), I32), LANES)
            index = e.b.add(here, constant_vector(I32, range(LANES)))
            key = keep(e, ranking.rest(ranking.keys(x), index, found), count, NONE)
            wins = ranking.wins(key, best)
            return [e.b.select(wins, key, best), e.b.select(wins, index, place)]

        values = [scalar(kind, NONE), scalar(kind, 0)]
        if whole:
            with e.carrying_loop(0, whole, values, LANES, "vector") as carry:
                carry.next(step(list(carry.values), carry.index, None))
            values = list(carry.values)
        if extent > whole:
            values = step(values, whole, extent - whole)
        return _first_of_lanes(ranking, *values)


def _splats(e: Emitter, values: list[Value]) -> tuple[Value, Value]:
    best, place = (e.splat(value, LANES) for value in values)
    return best, place


def _first_of_lanes(ranking: Ranking, best: Value, place: Value) -> tuple[Value, Value]:
    e = ranking.site.e
    top = reduce_lanes(e, best, lambda a, b: e.intrinsic("llvm.smax", a, b))
    ties = e.b.icmp_signed("==", best, e.splat(top, LANES))
    least, choose = (-1, "llvm.smax") if ranking.last else (LARGEST_INT, "llvm.smin")
    places = e.b.select(ties, place, scalar(place.type, least))
    return top, reduce_lanes(e, places, lambda a, b: e.intrinsic(choose, a, b))


@kernel
@dataclass(frozen=True)
class RankAcross(Kernel):
    """Along another axis than the last: every lane is a row of its own."""

    name: ClassVar[str] = "rank-across"
    uses_scales: ClassVar[bool] = False

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Vectors of 16, once for every element of the result."""
        return _cost(instruction)

    def emit(self, site: Site) -> None:
        """Blocks of 16 columns, the last one cut."""
        e, dest, src = site.e, site["dest"], site["src"]
        (outer, extent, inner), count = src.shape, dest.shape[1]
        whole = inner // LANES * LANES
        if not dest.type.size:
            return
        with e.loop(*e.share(outer), name="outer") as index:
            start = e.offset(src.pointer, e.scaled(index, extent * inner * src.element_bytes))
            to = e.offset(dest.pointer, e.scaled(index, count * inner * dest.element_bytes))
            for first, end, lanes in ((0, whole, None), (whole, inner, inner - whole)):
                if first == end:
                    continue
                with e.loop(first, end, LANES, "inner") as at:
                    source = e.offset(start, e.scaled(at, src.element_bytes))
                    self._columns(site, source, e.offset(to, e.scaled(at, dest.element_bytes)), lanes)

    def _columns(self, site: Site, start: Value, to: Value, lanes: int | None) -> None:
        """All results of up to 16 columns."""
        e, dest, ranking = site.e, site["dest"], Ranking(site)
        _, count, inner = dest.shape
        kind = vec(I32, LANES)
        with e.carrying_loop(0, count, _before_all(ranking.last, kind), name="rank") as carry:
            found = None if count == 1 else (carry.values[0], carry.values[1])
            best, place, value = self._best(ranking, start, lanes, found)
            result = value if ranking.gives_values else e.b.sext(place, vec(I64, LANES))
            e.store_lanes(result, e.offset(to, e.scaled(carry.index, inner * dest.element_bytes)), lanes)
            carry.next([best, place])

    def _best(
        self, ranking: Ranking, start: Value, lanes: int | None, found: tuple[Value, Value] | None
    ) -> list[Value]:
        """Keys, indices and elements that rank first in their columns, after `found`."""
        e, src = ranking.site.e, ranking.site["src"]
        _, extent, inner = src.shape
        kind = vec(I32, LANES)
        values = [scalar(kind, NONE), scalar(kind, 0), scalar(vec(src.element, LANES), 0)]
        with e.carrying_loop(0, extent, values, name="row") as carry:
            best, place, value = carry.values
            at = e.offset(start, e.scaled(carry.index, inner * src.element_bytes))
            x = e.load_lanes(at, src.element, LANES, lanes)
            index = e.splat(e.b.trunc(e.index(carry.index), I32), LANES)
            key = ranking.rest(ranking.keys(x), index, found)
            wins = ranking.wins(key, best)
            pairs = ((key, best), (index, place), (x, value))
            carry.next([e.b.select(wins, new, old) for new, old in pairs])
        return list(carry.values)


def _cost(instruction: Instruction) -> float:
    src, dest = instruction.operand("src").type, instruction.operand("dest").type
    return src.size / LANES * dest.shape[1] * CYCLES_A_VECTOR


@candidates_for(FirstIndices, FirstValues)
def ranking_candidates(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """By whether anything but single elements lies behind the axis."""
    inner = instruction.operand("src").type.shape[2]
    return [RankAlong() if inner == 1 else RankAcross()]
