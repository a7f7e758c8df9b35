"""C of products with the matrices of experts."""

from __future__ import annotations

from qglow.csource.blocks import block_sum
from qglow.csource.writer import SourceSite, emits
from qglow.instructions.ops.experts import ExpertBlockGemm, ExpertGemm


@emits(ExpertGemm)
def expert_gemm(site: SourceSite) -> None:
    """A chain over ascending k, which begins with the bias."""
    w, o, depth = site.writer, site.operation, site.shape("src")[1]
    with w.loops(site.shape("dest")) as (m, n):
        column = _column(site, m, n)
        w.line(f"float sum = {site.load('bias', (column,)) if site.has('bias') else '0.0f'};")
        with w.loops((depth,), "k") as (k,):
            w.line(f"sum = fused({site.load('src', (m, k))}, {site.load('filter', (k, column))}, sum);")
        site.store("dest", (m, n), site.clipped("sum", o.lo, o.hi))


@emits(ExpertBlockGemm)
def expert_block_gemm(site: SourceSite) -> None:
    """Sums of a blockgemm, of the columns of a row's expert."""
    w, o = site.writer, site.operation
    with w.loops(site.shape("dest")) as (m, n):
        column = _column(site, m, n)
        block_sum(site, m, column, by_rows=site.has("rows"))
        site.store("dest", (m, n), site.clipped("sum", o.lo, o.hi))


def _column(site: SourceSite, row: str, column: str) -> str:
    """The place of a column of a row's expert among those of all experts."""
    count, columns = site.operation.experts, site.shape("dest")[1]
    given = site.declared("int64_t", "given", site.load("experts", (row,)))
    chosen = site.declared("int64_t", "chosen", f"{given} < 0 ? {given} + {count} : {given}")
    inside = f"({chosen} < 0 ? 0 : {chosen} > {count - 1} ? {count - 1} : {chosen})"
    return site.declared("int32_t", "column", f"(int32_t)({inside} * {columns} + {column})")
