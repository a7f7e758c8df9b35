"""C of the elements that rank first along an axis, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qglow.core.types import ElementType
from qglow.csource.writer import SourceSite, emits
from qglow.instructions.ops.ranking import FirstIndices, FirstValues


@emits(FirstIndices)
def first_indices(site: SourceSite) -> None:
    """Places."""
    _rank(site, site.operation.last, lambda place: "best")


@emits(FirstValues)
def first_values(site: SourceSite) -> None:
    """Elements."""
    _rank(site, False, lambda place: site.load("src", place))


def _rank(site: SourceSite, last: bool, found: Callable[[Sequence[str]], str]) -> None:
    """Search for each rank the first element behind the one before: no memory is needed."""
    w, (outer, extent, inner), count = site.writer, site.shape("src"), site.shape("dest")[1]
    with w.loops((outer, 1, inner)) as (a, _, b):
        w.line("int64_t before = INT64_MAX;")
        w.line(f"int32_t at = {extent if last else -1};")
        with w.block(f"for (int32_t rank = 0; rank < {count}; rank++)"):
            w.line("int64_t most = INT64_MIN;")
            w.line("int32_t best = -1;")
            with w.block(f"for (int32_t k = 0; k < {extent}; k++)"):
                w.line(f"const int64_t key = {_key(site, site.load('src', (a, 'k', b)))};")
                beyond = "k < at" if last else "k > at"
                better = "key >= most" if last else "(key > most || best < 0)"
                with w.block(f"if ((key < before || (key == before && {beyond})) && {better})"):
                    w.line("most = key;")
                    w.line("best = k;")
            w.line("before = most;")
            w.line("at = best;")
            site.store("dest", (a, "rank", b), found((a, "best", b)))


def _key(site: SourceSite, value: str) -> str:
    """An integer that is larger for what ranks earlier (numerics.ranking.rank_keys)."""
    largest, kind = site.operation.largest, site.kind("src")
    if kind.is_float:
        return f"rank_of({value}, {int(largest)})"
    if kind.element is ElementType.UINT64:
        value = f"(int64_t)({value} ^ 0x8000000000000000u)"
    return value if largest else f"~(int64_t){value}"
