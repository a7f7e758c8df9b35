"""C of weights in blocks (rule 12), and of the scales of rows (rule 11)."""

from __future__ import annotations

from qglow.csource.writer import SourceSite, emits, number
from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.ops.rows import RowScales
from qglow.numerics.blocks import block_count, middle
from qglow.numerics.rows import LARGEST, LEAST_SCALE


@emits(BlockGemm)
def block_gemm(site: SourceSite) -> None:
    """A chain in each block, of floats or of exact integers, and one over blocks."""
    o = site.operation
    with site.writer.loops(site.shape("dest")) as (m, n):
        block_sum(site, m, n, by_rows=site.has("rows"))
        site.store("dest", (m, n), site.clipped("sum", o.lo, o.hi))


def block_sum(site: SourceSite, m: str, n: str, by_rows: bool = False) -> None:
    """Declare `sum`, the product of a row and a column of weights, plus the bias; by_rows: of integers."""
    w, o, depth = site.writer, site.operation, site.shape("src")[1]
    w.line("float sum = 0.0f;")
    with w.loops((block_count(depth, o.block),), "b") as (b,):
        w.line("int32_t part = 0;" if by_rows else "float part = 0.0f;")
        w.line(f"const {'int32_t' if by_rows else 'float'} zero = {_zero(site, b, n)};")
        first, end = f"{b} * {o.block}", f"{b} * {o.block} + {o.block}"
        with w.block(f"for (int32_t k = {first}; k < {end} && k < {depth}; k++)"):
            code, x = _code(site, "filter", "k", n), site.load("src", (m, "k"))
            if by_rows:
                w.line(f"part += {x} * ({code} - zero);")
            else:
                weight = site.declared("float", "weight", f"(float)({code}) - zero")
                w.line(f"part = fused({x}, {weight}, part);")
        scale = site.load("scales", (b, n))
        if by_rows:
            scale = site.declared("float", "scale", f"{site.load('rows', (m, '0'))} * {scale}")
        w.line(f"sum = fused((float)part, {scale}, sum);")
    if site.has("bias"):
        w.line(f"sum = sum + {site.load('bias', (n,))};")


def _zero(site: SourceSite, block: str, column: str) -> str:
    """The zero point of a block and column."""
    bits = site.operation.bits
    if not site.has("zeros"):
        return str(middle(bits))
    whole = site.kind("zeros").is_float or site.shape("zeros")[0] == site.shape("scales")[0]
    return site.load("zeros", (block, column)) if whole else _code(site, "zeros", block, column)


def _code(site: SourceSite, name: str, place: str, column: str) -> str:
    """A code out of a byte that holds several along the first axis, the first one lowest."""
    bits = site.operation.bits
    each = 8 // bits
    if each == 1:
        return site.load(name, (place, column))
    if place == "0":
        return f"({site.load(name, ('0', column))} & {(1 << bits) - 1})"
    byte = site.load(name, (f"{place} / {each}", column))
    return f"({byte} >> {bits} * ({place} % {each}) & {(1 << bits) - 1})"


@emits(RowScales)
def row_scales(site: SourceSite) -> None:
    """The bits of magnitudes are compared as integers."""
    w, (rows, extent) = site.writer, site.shape("src")
    with w.loops((rows,)) as (row,):
        w.line("int32_t top = 0;")
        with w.block(f"for (int32_t k = 0; k < {extent}; k++)"):
            w.line(f"const int32_t size = bits_of({site.load('src', (row, 'k'))}) & 0x7fffffff;")
            w.line("top = size > top ? size : top;")
        scale = site.declared("float", "scale", f"real_of(top) / {number(float(LARGEST))}")
        least = number(LEAST_SCALE)
        found = f"top >= 0x7f800000 ? {number(float('nan'))} : {scale} > {least} ? {scale} : {least}"
        site.store("dest", (row, "0"), found)
