"""Weights in blocks along K, and products with them (rule 12 of the numeric contract).

Codes are unsigned integers of 8, 4 or 2 bits, and a weight is `(code - zero point) * scale` with a scale and
a zero point for each block and column. In memory the codes of consecutive k share a byte, the lowest k in
the lowest bits: codes [K, N] take [ceil(K * bits / 8), N] bytes. Zero points [blocks, N] that are integers
are packed likewise, or have a byte each. Scales are float32, or float16 that is widened.
"""

from __future__ import annotations

import itertools
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


LEAST_SCALE = 2.0**-100
"""Least scale of a block: that of zeros too."""
LEAST_FLOAT16, LARGEST_FLOAT16 = np.float32(2.0**-24), np.float32(65504.0)
"""Least and largest positive numbers of float16."""


FRACTIONS = np.linspace(1.0, 0.6, 21)
"""Scales that are tried for weights of few bits, as fractions of the one that reaches the largest weight."""


AT_ONCE = 1 << 15
"""Weights whose scales are tried at once: few enough to stay in a cache."""


def quantize_blocks(
    w: Array, bits: int, block: int, symmetric: bool, float16: bool = False
) -> tuple[Array, Array, Array | None]:
    """Codes uint8 [K, N], scales [blocks, N] and zero points uint8, None if symmetric, of w [K, N].

    symmetric: the scale is at most `max|w| / (2^(bits - 1) - 1)`. Else codes cover the range of the block and
    0: the scale is at most its extent over `2^bits - 1`, and the zero point the nearest code of 0. With fewer
    than 8 bits each block has the fraction of that scale with the least squared error of its weights; of
    equal ones the largest. Scales are float32 of at least 2^-100, or with `float16` the nearest of that type
    from 2^-24 to 65504; each weight has the code that is nearest with its scale as it is stored.
    """
    depth, columns = w.shape
    codes = np.empty((depth, columns), np.uint8)
    scales = np.empty((block_count(depth, block), columns), np.float16 if float16 else np.float32)
    zeros = np.empty(scales.shape, np.uint8)
    width = max(1, min(columns, AT_ONCE // block))
    rows = max(1, AT_ONCE // (block * width)) * block
    for start, first in itertools.product(range(0, depth, rows), range(0, columns, width)):
        part, across = slice(start, start + rows), slice(first, first + width)
        own = slice(start // block, (start + rows) // block)
        codes[part, across], scales[own, across], zeros[own, across] = _quantized_part(
            w[part, across], bits, block, symmetric, float16
        )
    return codes, scales, None if symmetric else zeros


def _quantized_part(
    w: Array, bits: int, block: int, symmetric: bool, float16: bool
) -> tuple[Array, Array, Array]:
    """Codes, scales in float32 and zero points of some whole blocks."""
    starts = np.arange(0, len(w), block)
    exact = np.asarray(w, np.float64)
    low, high = block_range(w, block)
    least = np.full((len(starts), w.shape[1]), np.inf)
    scales, zeros = block_parameters(low, high, bits, symmetric, float16=float16)
    for fraction in FRACTIONS if bits < 8 else ():
        tried = block_parameters(low, high, bits, symmetric, fraction, float16)
        steps, points = (spread(parameters, block, len(w)) for parameters in tried)
        found = (codes_of(w, steps, points, bits) - points.astype(np.float64)) * steps
        error = np.add.reduceat(np.square(found - exact), starts, axis=0)
        better = error < least
        least = np.where(better, error, least)
        scales, zeros = (np.where(better, new, old) for new, old in zip(tried, (scales, zeros), strict=True))
    codes = codes_of(w, spread(scales, block, len(w)), spread(zeros, block, len(w)), bits)
    return codes, scales, zeros


def block_range(w: Array, block: int) -> tuple[Array, Array]:
    """Least and largest weights of blocks, float64 [blocks, N], at most and at least 0."""
    starts = np.arange(0, len(w), block)
    low, high = (extreme.reduceat(w, starts, axis=0) for extreme in (np.minimum, np.maximum))
    return np.minimum(low.astype(np.float64), 0.0), np.maximum(high.astype(np.float64), 0.0)


def block_parameters(
    low: Array, high: Array, bits: int, symmetric: bool, fraction: float = 1.0, float16: bool = False
) -> tuple[Array, Array]:
    """Scales float32 and zero points uint8 of blocks with these ranges [blocks, N], for a fraction of them.

    float16: whether scales are numbers of that type.
    """
    if symmetric:
        extent, steps = np.maximum(-low, high), middle(bits) - 1
    else:
        extent, steps = high - low, (1 << bits) - 1
    scales = np.maximum(fraction * extent / steps, LEAST_SCALE).astype(np.float32)
    if float16:
        scales = np.clip(scales, LEAST_FLOAT16, LARGEST_FLOAT16).astype(np.float16).astype(np.float32)
    if symmetric:
        return scales, np.full(scales.shape, middle(bits), np.uint8)
    return scales, np.clip(np.rint(-low * fraction / scales), 0, steps).astype(np.uint8)


def spread(parameters: Array, block: int, depth: int) -> Array:
    """One parameter for each of K weights, from one for each block."""
    return np.repeat(parameters, block, axis=0)[:depth]


def codes_of(w: Array, scales: Array, zeros: Array, bits: int) -> Array:
    """Nearest codes of weights: `round_half_even(w / scale) + zero point`, in float32, within the range."""
    nearest = np.rint(np.asarray(w, np.float32) / scales)
    # Far beyond the codes nothing but the side matters.
    near = np.clip(nearest, -(1 << 15), 1 << 15).astype(np.int32)
    return np.asarray(np.clip(near + zeros, 0, (1 << bits) - 1).astype(np.uint8))
