"""Selection of the first-ranked elements along an axis, with one pass over the row for each of them.

Elements become int32 or int64 keys in the order of numerics.ranking.rank_keys. Each pass after the first
ignores the elements that rank no later than the one found in the pass before, so nothing is sorted or kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from qglow.instructions.ops.ranking import FirstIndices, FirstValues
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.requantize import widen_centred
from qglow.kernels.emit.builder import I32, I64, Index, Value, constant_vector, scalar, vec
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.reduction.softmax import keep, reduce_lanes

LARGEST_INT = (1 << 31) - 1


@dataclass(frozen=True)
class Ranking:
    """Order of elements, as both kernels emit it: keys, and which of two elements ranks first."""

    site: Site

    @property
    def lanes(self) -> int:
        """Number of elements compared at a time."""
        return self.site.target.loop_lanes

    @property
    def last(self) -> bool:
        """Whether of equal elements the one with the higher index ranks first."""
        return bool(getattr(self.site.operation, "last", False))

    @property
    def gives_values(self) -> bool:
        """Whether the result is elements, not their indices."""
        return isinstance(self.site.operation, FirstValues)

    @property
    def key(self) -> Any:
        """The LLVM type of a key: int64 for numbers that int32 does not hold with one to spare."""
        kind = self.site["src"].type
        return I64 if kind.is_plain_integer and kind.element.size > 2 else I32

    @property
    def none(self) -> int:
        """The key of no element: the least one, which only numbers of 64 bits may have too."""
        return -(1 << (int(self.key.width) - 1))

    @property
    def compares_places(self) -> bool:
        """Whether elements take every key, so that only `nowhere` tells the least of them from none."""
        kind = self.site["src"].type
        return kind.is_plain_integer and kind.element.size == 8

    @property
    def nowhere(self) -> int:
        """The place of no element, behind those of all elements of one key."""
        return -1 if self.last else LARGEST_INT

    def nothing(self) -> list[Value]:
        """Key and place in every lane that all elements rank before."""
        place = self.nowhere if self.compares_places else 0
        return [scalar(vec(self.key, self.lanes), self.none), scalar(vec(I32, self.lanes), place)]

    def keys(self, x: Value) -> Value:
        """Emit keys of elements; integers are their own, inverted if the smallest rank first."""
        e, kind, largest = self.site.e, vec(I32, x.type.count), self.site.operation.largest
        if not (self.site["src"].is_float or self.site["src"].type.is_quantized):
            return self._number_keys(x)
        if not self.site["src"].is_float:
            found = widen_centred(e, x, 0)
            return found if largest else e.b.not_(found)
        # Adding 0 makes -0 the 0 that it equals.
        bits = e.b.bitcast(e.b.fadd(x, scalar(x.type, 0.0)), kind)
        # Bits of floats compare like integers where they are positive, and backwards where they are negative:
        # turning all bits of these but the sign lets one integer comparison rank every element type.
        negative = e.b.ashr(bits, scalar(kind, 31))
        found = e.b.xor(bits, e.b.and_(negative, scalar(kind, LARGEST_INT)))
        if not largest:
            found = e.b.not_(found)
        return e.b.select(e.b.fcmp_unordered("uno", x, x), scalar(kind, LARGEST_INT), found)

    def _number_keys(self, x: Value) -> Value:
        """Emit keys of plain integers and booleans; see numerics.ranking for those of 64 bits."""
        e, element, kind = self.site.e, self.site["src"].type.element, vec(self.key, x.type.count)
        if x.type == kind:
            found = e.b.xor(x, scalar(kind, self.none)) if element.is_unsigned else x
        else:
            found = e.b.zext(x, kind) if element.is_unsigned else e.b.sext(x, kind)
        return found if self.site.operation.largest else e.b.not_(found)

    def before_all(self, spread: bool) -> list[Value]:
        """A key and an index that rank before every element's."""
        key, place = (vec(kind, self.lanes) if spread else kind for kind in (self.key, I32))
        top = (1 << (int(self.key.width) - 1)) - 1
        return [scalar(key, top), scalar(place, LARGEST_INT if self.last else -1)]

    def rest(self, key: Value, index: Value, found: tuple[Value, Value] | None) -> tuple[Value, Value]:
        """Key and place, of `nothing` where the element ranks no later than that with those in `found`."""
        if found is None:
            return key, index
        e, (best, place) = self.site.e, found
        after = e.b.icmp_signed("<" if self.last else ">", index, place)
        equal = e.b.and_(e.b.icmp_signed("==", key, best), after)
        is_left = e.b.or_(e.b.icmp_signed("<", key, best), equal)
        if self.compares_places:
            index = e.b.select(is_left, index, scalar(index.type, self.nowhere))
        return e.b.select(is_left, key, scalar(key.type, self.none)), index

    def cut(self, key: Value, index: Value, count: int | None) -> tuple[Value, Value]:
        """Key and place, of `nothing` behind the first `count` lanes."""
        e = self.site.e
        if self.compares_places:
            index = keep(e, index, count, self.nowhere)
        return keep(e, key, count, self.none), index

    def wins(self, key: Value, index: Value, best: Value, place: Value) -> Value:
        """Whether an element ranks before the best of those with lower indices."""
        b = self.site.e.b
        if not self.compares_places:
            return b.icmp_signed(">=" if self.last else ">", key, best)
        first = b.icmp_signed(">" if self.last else "<", index, place)
        return b.or_(b.icmp_signed(">", key, best), b.and_(b.icmp_signed("==", key, best), first))


@kernel
@dataclass(frozen=True)
class RankAlong(Kernel):
    """Ranking along contiguous rows: every lane finds its best, then the lanes are compared."""

    name: ClassVar[str] = "rank-along"
    uses_scales: ClassVar[bool] = False

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of comparing all vectors once for every element of the result."""
        return _cost(instruction, target)

    def emit(self, site: Site) -> None:
        """Emit a loop over rows, which threads share, and in it a pass for every element of the result."""
        e, dest, src, ranking = site.e, site["dest"], site["src"], Ranking(site)
        (rows, extent, _), count = src.shape, dest.shape[1]
        if not dest.type.size:
            return
        with e.loop(*e.share(rows), name="row") as row:
            start = e.offset(src.pointer, e.scaled(row, extent * src.element_bytes))
            to = e.offset(dest.pointer, e.scaled(row, count * dest.element_bytes))
            with e.carrying_loop(0, count, ranking.before_all(spread=False), name="rank") as carry:
                found = None if count == 1 else _splats(ranking, carry.values)
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
        """Emit one pass over a row: key and index of the element that ranks first after `found`."""
        e, src = ranking.site.e, ranking.site["src"]
        lanes = ranking.lanes
        whole = extent // lanes * lanes

        def step(values: list[Value], at: Index, count: int | None) -> list[Value]:
            best, place = values
            x = e.load_lanes(e.offset(row, e.scaled(at, src.element_bytes)), src.element, lanes, count)
            here = e.splat(e.b.trunc(e.index(at), I32), lanes)
            index = e.b.add(here, constant_vector(I32, range(lanes)))
            key, index = ranking.cut(*ranking.rest(ranking.keys(x), index, found), count)
            wins = ranking.wins(key, index, best, place)
            return [e.b.select(wins, key, best), e.b.select(wins, index, place)]

        values = ranking.nothing()
        if whole:
            with e.carrying_loop(0, whole, values, lanes, "vector") as carry:
                carry.next(step(list(carry.values), carry.index, None))
            values = list(carry.values)
        if extent > whole:
            values = step(values, whole, extent - whole)
        return _first_of_lanes(ranking, *values)


def _splats(ranking: Ranking, values: list[Value]) -> tuple[Value, Value]:
    best, place = (ranking.site.e.splat(value, ranking.lanes) for value in values)
    return best, place


def _first_of_lanes(ranking: Ranking, best: Value, place: Value) -> tuple[Value, Value]:
    e = ranking.site.e
    top = reduce_lanes(e, best, lambda a, b: e.intrinsic("llvm.smax", a, b))
    ties = e.b.icmp_signed("==", best, e.splat(top, ranking.lanes))
    choose = "llvm.smax" if ranking.last else "llvm.smin"
    places = e.b.select(ties, place, scalar(place.type, ranking.nowhere))
    return top, reduce_lanes(e, places, lambda a, b: e.intrinsic(choose, a, b))


@kernel
@dataclass(frozen=True)
class RankAcross(Kernel):
    """Ranking along an axis that is not the last: every lane ranks a column, so lanes need no comparison."""

    name: ClassVar[str] = "rank-across"
    uses_scales: ClassVar[bool] = False

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of comparing all vectors once for every element of the result."""
        return _cost(instruction, target)

    def emit(self, site: Site) -> None:
        """Emit loops over the outer axes and over blocks of columns, the last of which may be partial."""
        e, dest, src = site.e, site["dest"], site["src"]
        (outer, extent, inner), count = src.shape, dest.shape[1]
        lanes = site.target.loop_lanes
        whole = inner // lanes * lanes
        if not dest.type.size:
            return
        with e.loop(*e.share(outer), name="outer") as index:
            start = e.offset(src.pointer, e.scaled(index, extent * inner * src.element_bytes))
            to = e.offset(dest.pointer, e.scaled(index, count * inner * dest.element_bytes))
            for first, end, cut in ((0, whole, None), (whole, inner, inner - whole)):
                if first == end:
                    continue
                with e.loop(first, end, lanes, "inner") as at:
                    source = e.offset(start, e.scaled(at, src.element_bytes))
                    self._columns(site, source, e.offset(to, e.scaled(at, dest.element_bytes)), cut)

    def _columns(self, site: Site, start: Value, to: Value, cut: int | None) -> None:
        """Emit all results of one block of columns."""
        e, dest, ranking = site.e, site["dest"], Ranking(site)
        _, count, inner = dest.shape
        with e.carrying_loop(0, count, ranking.before_all(spread=True), name="rank") as carry:
            found = None if count == 1 else (carry.values[0], carry.values[1])
            best, place, value = self._best(ranking, start, cut, found)
            result = value if ranking.gives_values else e.b.sext(place, vec(I64, ranking.lanes))
            e.store_lanes(result, e.offset(to, e.scaled(carry.index, inner * dest.element_bytes)), cut)
            carry.next([best, place])

    def _best(
        self, ranking: Ranking, start: Value, cut: int | None, found: tuple[Value, Value] | None
    ) -> list[Value]:
        """Emit one pass: keys, indices and elements that rank first in their columns after `found`."""
        e, src = ranking.site.e, ranking.site["src"]
        _, extent, inner = src.shape
        values = [*ranking.nothing(), scalar(vec(src.element, ranking.lanes), 0)]
        with e.carrying_loop(0, extent, values, name="row") as carry:
            best, place, value = carry.values
            at = e.offset(start, e.scaled(carry.index, inner * src.element_bytes))
            x = e.load_lanes(at, src.element, ranking.lanes, cut)
            index = e.splat(e.b.trunc(e.index(carry.index), I32), ranking.lanes)
            key, index = ranking.rest(ranking.keys(x), index, found)
            wins = ranking.wins(key, index, best, place)
            pairs = ((key, best), (index, place), (x, value))
            carry.next([e.b.select(wins, new, old) for new, old in pairs])
        return list(carry.values)


def _cost(instruction: Instruction, target: VectorTarget) -> float:
    src, dest = instruction.operand("src").type, instruction.operand("dest").type
    return src.size / target.loop_lanes * dest.shape[1] * target.model.loops.ranked_vector


@candidates_for(FirstIndices, FirstValues)
def ranking_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return `RankAlong` if no elements lie behind the axis, else `RankAcross`."""
    inner = instruction.operand("src").type.shape[2]
    return [RankAlong() if inner == 1 else RankAcross()]
