"""Multiplications of x86 vector units and of AMX, as tiles.

Intrinsics: Intel Architecture Instruction Set Extensions and Intel 64 Software Developer's Manual, volume 2.
LLVM names one of its own for every size of register, so a tile picks by the size of its sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from qglow.kernels.emit.builder import I16, Builder, Value, scalar, vec
from qglow.kernels.emit.tiles import Tile, lane_products, matrix_products, saturated_pairs


def _multiply_words(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    """pmaddwd: products of signed 16 bits, added in pairs."""
    name = "llvm.x86.avx2.pmadd.wd" if sums.type.count == 8 else "llvm.x86.sse2.pmadd.wd"
    return e.b.add(sums, e.call(name, sums.type, [lhs, rhs]))


def _multiply_bytes(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    """vpdpbusd: four products of each lane, added without saturation. Also makes AVX-VNNI's encoding."""
    return e.call(f"llvm.x86.avx512.vpdpbusd.{32 * sums.type.count}", sums.type, [sums, lhs, rhs])


def byte_pairs(e: Builder, lhs: Value, rhs: Value) -> Value:
    """vpmaddubsw: products of unsigned and signed bytes in pairs, int16, saturated."""
    return e.call("llvm.x86.avx2.pmadd.ub.sw", vec(I16, lhs.type.count // 2), [lhs, rhs])


def add_word_pairs(e: Builder, sums: Value, pairs: Value, factor: int = 1) -> Value:
    """`sums` plus `factor` times both int16 of every lane."""
    return e.b.add(sums, e.call("llvm.x86.avx2.pmadd.wd", sums.type, [pairs, scalar(pairs.type, factor)]))


def _multiply_byte_pairs(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    return add_word_pairs(e, sums, byte_pairs(e, lhs, rhs))


def _join_byte_pairs(e: Builder, sums: Value, steps: Sequence[tuple[Value, Value]]) -> Value:
    pairs = [byte_pairs(e, lhs, rhs) for lhs, rhs in steps]
    return add_word_pairs(e, sums, reduce(e.b.add, pairs))


PMADDWD = Tile("pmaddwd", 1, 4, 2, "s16", "s16", lane_products, _multiply_words)
VPMADDWD = Tile("vpmaddwd", 1, 8, 2, "s16", "s16", lane_products, _multiply_words)
VPMADDUBSW = Tile(
    "vpmaddubsw",
    1,
    8,
    4,
    "u8",
    "s8",
    saturated_pairs,
    _multiply_byte_pairs,
    is_exact=False,
    join=_join_byte_pairs,
)
VPDPBUSD = Tile("vpdpbusd", 1, 16, 4, "u8", "s8", lane_products, _multiply_bytes)
VEX_VPDPBUSD = Tile("vpdpbusd", 1, 8, 4, "u8", "s8", lane_products, _multiply_bytes)
TDPBUSD = Tile("tdpbusd", 16, 16, 64, "u8", "s8", matrix_products)
