"""Weights in blocks along K, and products with them (rule 12 of the numeric contract).

Codes are unsigned integers of 8, 4 or 2 bits, and a weight is `(code - zero point) * scale` with a scale and
a zero point for each block and column. In memory the codes of consecutive k share a byte, the lowest k in
the lowest bits: codes [K, N] take [ceil(K * bits / 8), N] bytes. Zero points [blocks, N] that are integers
are packed likewise, or have a byte each. Scales are float32, or float16 that is widened.
"""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import Array
from qglow.numerics.elementwise import clip
from qglow.numerics.fused import fused_multiply_add
from qglow.numerics.half import widen
from qglow.numerics.rows import LARGEST

WIDTHS = (8, 4, 2)
"""Bits that a code may have."""
LEAST_BLOCK, LARGEST_BLOCK = 16, 256
"""Fewest and most weights of a block; the last one may be shorter."""


def block_fault(bits: int, block: int) -> str | None:
    """Reason why there are no blocks of this size with codes of this width; None if there are."""
    if bits not in WIDTHS:
        return f"weights of {bits} bits; 8, 4 and 2 are supported"
    if not LEAST_BLOCK <= block <= LARGEST_BLOCK or block % LEAST_BLOCK:
        return f"blocks of {block}; multiples of {LEAST_BLOCK} up to {LARGEST_BLOCK} are supported"
    return None


def middle(bits: int) -> int:
    """The zero point of blocks that state none."""
    return 1 << (bits - 1)


def packed_rows(depth: int, bits: int) -> int:
    """Rows of bytes that hold codes of K rows."""
    return -(-depth * bits // 8)


def block_count(depth: int, block: int) -> int:
    """Blocks of K weights."""
    return -(-depth // block)


def pack(codes: Array, bits: int) -> Array:
    """uint8 [ceil(K * bits / 8), N] of codes [K, N]; what is missing in the last row is 0."""
    each = 8 // bits
    depth, columns = codes.shape
    filled = np.zeros((packed_rows(depth, bits) * each, columns), np.uint8)
    filled[:depth] = codes
    parts = filled.reshape(-1, each, columns)
    packed = np.zeros((len(parts), columns), np.uint8)
    for number in range(each):
        packed |= parts[:, number] << np.uint8(bits * number)
    return packed


def unpack(packed: Array, bits: int, depth: int) -> Array:
    """uint8 codes [K, N], the inverse of `pack`."""
    each, mask = 8 // bits, np.uint8((1 << bits) - 1)
    parts = [(packed >> np.uint8(bits * number)) & mask for number in range(each)]
    return np.stack(parts, axis=1).reshape(len(packed) * each, -1)[:depth]


def apart(zero_points: Array, bits: int, blocks: int) -> Array:
    """Zero points [blocks, N], one an element: float32 as they are, uint8 unpacked where they are packed."""
    return zero_points if len(zero_points) == blocks else unpack(zero_points, bits, blocks)


def centred(packed: Array, zero_points: Array | None, depth: int, bits: int, block: int) -> Array:
    """float32 `code - zero point` of every weight [K, N]. zero_points: those of blocks, uint8 or float32."""
    codes = unpack(packed, bits, depth).astype(np.float32)
    if zero_points is None:
        return codes - np.float32(middle(bits))
    points = apart(zero_points, bits, block_count(depth, block))
    zeros = np.repeat(points.astype(np.float32), block, axis=0)[:depth]
    return np.asarray(codes - zeros, np.float32)


def dequantized(
    packed: Array, scales: Array, zero_points: Array | None, depth: int, bits: int, block: int
) -> Array:
    """float32 weights [K, N]: `(code - zero point) * scale`."""
    whole = centred(packed, zero_points, depth, bits, block)
    return np.asarray(whole * np.repeat(widen(scales), block, axis=0)[:depth], np.float32)


def gemm_blocks(
    x: Array,
    packed: Array,
    scales: Array,
    zero_points: Array | None,
    bias: Array | None,
    bits: int,
    block: int,
    lo: float = -math.inf,
    hi: float = math.inf,
) -> Array:
    """float32 x [..., K] times weights [K, N] in blocks, plus bias [N], within the bounds.

    In each block one chain `a = fma(x[k], code - zero point, a)` over ascending k from 0, then
    `y = fma(a, scale, y)` over ascending blocks from 0; the bias is added last.
    """
    depth = x.shape[-1]
    rows = np.asarray(x, np.float32).reshape(-1, depth)
    weights = centred(packed, zero_points, depth, bits, block)
    total = np.zeros((len(rows), packed.shape[1]), np.float32)
    for number, scale in enumerate(widen(scales)):
        part = np.zeros_like(total)
        for k in range(number * block, min((number + 1) * block, depth)):
            part = fused_multiply_add(rows[:, k, None], weights[k], part)
        total = fused_multiply_add(part, scale, total)
    with np.errstate(all="ignore"):
        total = total if bias is None else np.asarray(total + bias, np.float32)
    return clip(total, lo, hi).reshape(*x.shape[:-1], packed.shape[1])


def gemm_integer_blocks(
    x: Array,
    row_scales: Array,
    packed: Array,
    scales: Array,
    zero_points: Array | None,
    bias: Array | None,
    bits: int,
    block: int,
    lo: float = -math.inf,
    hi: float = math.inf,
) -> Array:
    """Integers x [..., K] of rows with scales [..., 1] times weights in blocks, plus bias, within the bounds.

    In each block the exact sum of integers, then `y = fma(float32(sum), row scale * scale, y)` over ascending
    blocks from 0; the bias is added last. Zero points are uint8.
    """
    depth = x.shape[-1]
    rows = np.asarray(x, np.float64).reshape(-1, depth)
    weights = centred(packed, zero_points, depth, bits, block).astype(np.float64)
    factors = np.asarray(row_scales, np.float32).reshape(-1, 1)
    total = np.zeros((len(rows), packed.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for number, scale in enumerate(widen(scales)):
            part = slice(number * block, (number + 1) * block)
            # Sums of integers below 2^24 are exact in any order.
            sums = (rows[:, part] @ weights[part]).astype(np.float32)
            total = fused_multiply_add(sums, np.asarray(factors * scale, np.float32), total)
        total = total if bias is None else np.asarray(total + bias, np.float32)
    return clip(total, lo, hi).reshape(*x.shape[:-1], packed.shape[1])


def largest_block_sum(packed: Array, zero_points: Array | None, depth: int, bits: int, block: int) -> int:
    """The largest magnitude of a sum over a block of weights times integers of -127 ... 127."""
    weights = np.abs(centred(packed, zero_points, depth, bits, block)).astype(np.int64)
    sums = np.add.reduceat(weights, np.arange(0, depth, block), axis=0) if depth else weights
    return int(np.max(sums, initial=0)) * LARGEST


def gather_blocks(
    table: Array,
    indices: Array,
    scales: Array,
    zero_points: Array | None,
    width: int,
    bits: int,
    block: int,
    transposed: bool = False,
) -> Array:
    """float32 rows [..., width] of a table of codes [rows, bytes], whose blocks lie along its rows.

    scales: [rows, blocks]; zero points likewise, or packed along rows. transposed: whether all three are
    stored with their axes exchanged. Raises IndexError for an index that is out of range.
    """
    chosen = indices.reshape(-1)
    packed, factors, zeros = (
        None if a is None else np.take(a, chosen, 1) if transposed else np.take(a, chosen, 0).T
        for a in (table, scales, zero_points)
    )
    assert packed is not None and factors is not None
    found = dequantized(packed, factors, zeros, width, bits, block)
    return np.ascontiguousarray(found.T).reshape(*indices.shape, width)
