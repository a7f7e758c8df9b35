"""256-entry byte tables: word or byte permutes on AVX-512, sixteen shuffles of 16 entries on AVX2."""

from __future__ import annotations

from collections.abc import Callable

from qglow.kernels.emit.builder import I8, I16, Builder, Value, scalar, vec

TABLE_BYTES = 256


def by_bytes(e: Builder, index: Value, table: Value) -> Value:
    """AVX-512 VBMI: a permute of bytes for each half of the table."""
    return _in_pieces(e, index, 64, lambda part: _by_bytes(e, part, table))


def by_words(e: Builder, index: Value, table: Value) -> Value:
    """AVX-512 BW, which cannot permute bytes: a permute of pairs of them for each half of the table."""
    return _in_pieces(e, index, 32, lambda part: _by_words(e, part, table))


def by_shuffles(e: Builder, index: Value, table: Value) -> Value:
    """AVX2: a shuffle for each 16 entries of the table."""
    return _in_pieces(e, index, 32, lambda part: _by_shuffles(e, part, table))


def _in_pieces(e: Builder, q: Value, width: int, look_up: Callable[[Value], Value]) -> Value:
    lanes = q.type.count
    if lanes < width:
        wide = e.shuffle(q, None, [*range(lanes), *([-1] * (width - lanes))])
        return e.shuffle(look_up(wide), None, range(lanes))
    parts = [e.shuffle(q, None, range(i, i + width)) for i in range(0, lanes, width)]
    return e.concat([look_up(part) for part in parts])


def _by_bytes(e: Builder, q: Value, table: Value) -> Value:
    """vpermi2b takes 7 bits of index; the eighth chooses between the halves."""
    kind = vec(I8, 64)
    quarters = [e.load(e.offset(table, 64 * i), kind) for i in range(4)]
    low, high = (
        e.call("llvm.x86.avx512.vpermi2var.qi.512", kind, [quarters[i], q, quarters[i + 1]]) for i in (0, 2)
    )
    return e.b.select(e.b.icmp_signed("<", q, scalar(kind, 0)), high, low)


def _by_words(e: Builder, q: Value, table: Value) -> Value:
    """vpermi2w looks up the pair of bytes that holds the entry: 128 pairs, 6 bits of index each half."""
    kind = vec(I16, 32)
    quarters = [e.load(e.offset(table, 64 * i), kind) for i in range(4)]
    wide = e.b.zext(q, kind)
    pair = e.b.lshr(wide, scalar(kind, 1))
    low, high = (
        e.call("llvm.x86.avx512.vpermi2var.hi.512", kind, [quarters[i], pair, quarters[i + 1]])
        for i in (0, 2)
    )
    found = e.b.select(e.b.icmp_unsigned(">", wide, scalar(kind, 127)), high, low)
    shift = e.b.shl(e.b.and_(wide, scalar(kind, 1)), scalar(kind, 3))
    return e.b.trunc(e.b.lshr(found, shift), vec(I8, 32))


def _by_shuffles(e: Builder, q: Value, table: Value) -> Value:
    """vpshufb takes 4 bits of index and gives 0 where the top bit is set.

    An index relative to its 16 entries plus 0x70, saturated, has that bit set but for 0 to 15: so
    of sixteen shuffles all but one give 0.
    """
    kind, entries = vec(I8, 32), vec(I8, 16)
    found = scalar(kind, 0)
    for first in range(0, TABLE_BYTES, 16):
        part = e.load(e.offset(table, first), entries)
        both = e.shuffle(part, None, [*range(16), *range(16)])
        index = e.intrinsic("llvm.uadd.sat", e.b.sub(q, scalar(kind, first)), scalar(kind, 0x70))
        found = e.b.or_(found, e.call("llvm.x86.avx2.pshuf.b", kind, [both, index]))
    return found
