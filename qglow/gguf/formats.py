"""Formats of tensors in GGUF files: floats, and integers in blocks that are read without any rounding.

The layouts and what their numbers mean are those of ggml:
https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h and ggml-quants.c

A block of ggml has one scale, or a scale and an offset; a super-block of 256 has a float16 that multiplies
integer scales of its blocks. Products of these with a few bits are exact in float32, so that every weight
is `(code - zero point) * scale + offset` of numbers that float32 holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.types import Array, ElementType


@dataclass(frozen=True)
class StoredBlocks:
    """Weights [N, K] as `(code - zero point) * scale + offset`, the last three for each block along K.

    codes: uint8 [N, K] of `bits`. scales: float32 [N, blocks]. zero_points: uint8 [N, blocks], None for the
    middle of the codes. offsets: float32 [N, blocks], None where all are zero.
    """

    codes: Array
    scales: Array
    zero_points: Array | None
    offsets: Array | None
    bits: int
    block: int

    def rows(self, order: Array) -> StoredBlocks:
        """The same of some rows."""
        zeros, offsets = (None if a is None else a[order] for a in (self.zero_points, self.offsets))
        return replace(
            self, codes=self.codes[order], scales=self.scales[order], zero_points=zeros, offsets=offsets
        )

    def dequantized(self) -> Array:
        """float32 weights [N, K], each the nearest to its exact value."""
        zeros = np.float32(1 << (self.bits - 1))
        parts = self.codes.reshape(*self.scales.shape, self.block).astype(np.float32)
        points = zeros if self.zero_points is None else self.zero_points.astype(np.float32)[..., None]
        values = (parts - points) * self.scales[..., None]
        if self.offsets is not None:
            values += self.offsets[..., None]
        return np.asarray(values.reshape(self.codes.shape), np.float32)


@dataclass(frozen=True)
class Format:
    """A format by name: `size` bytes hold `block` elements.

    floats: makes float32 of bytes [blocks, size]; else blocks: makes codes [blocks, block], and parameters of
    the parts of each block. half: the type of 16 bits that floats have.
    """

    name: str
    block: int
    size: int
    floats: Callable[[Array], Array] | None = None
    blocks: Callable[[Array], StoredBlocks] | None = None
    half: ElementType | None = None

    def read_floats(self, data: memoryview) -> Array:
        """Elements in float32, one axis."""
        raw = np.frombuffer(data, np.uint8).reshape(-1, self.size)
        with np.errstate(all="ignore"):  # a damaged file has any numbers
            if self.floats is not None:
                return self.floats(raw).reshape(-1)
            assert self.blocks is not None
            return self.blocks(raw).dequantized().reshape(-1)

    def read_halves(self, data: memoryview) -> Array:
        """Elements of the type of 16 bits, one axis; of a format of these alone."""
        assert self.half is not None
        return np.frombuffer(data, "<u2").astype(np.uint16).view(self.half.dtype)

    def read_blocks(self, data: memoryview, rows: int) -> StoredBlocks:
        """Blocks of a matrix with so many rows; of a format of integers alone."""
        assert self.blocks is not None
        with np.errstate(all="ignore"):  # a damaged file has any numbers
            found = self.blocks(np.frombuffer(data, np.uint8).reshape(-1, self.size))
        zeros, offsets = (
            None if a is None else a.reshape(rows, -1) for a in (found.zero_points, found.offsets)
        )
        return replace(
            found,
            codes=found.codes.reshape(rows, -1),
            scales=found.scales.reshape(rows, -1),
            zero_points=zeros,
            offsets=offsets,
        )


def _half(raw: Array, place: int) -> Array:
    """float32 [blocks, 1] of the float16 at a place of each block."""
    return np.ascontiguousarray(raw[:, place : place + 2]).view("<f2").astype(np.float32)


def _nibbles(raw: Array) -> Array:
    """Low halves of all bytes [blocks, n], then high ones, [blocks, 2 * n]."""
    return np.concatenate([raw & 15, raw >> 4], axis=1)


def _shifted(codes: Array, steps: Array, added: Array, bits: int) -> StoredBlocks:
    """Blocks of weights `code * step + added`, with what of `added` is a zero point taken as one.

    The zero point is the code next to zero. What then is left is kept as an offset; where float32 does not
    hold it, all of `added` is.
    """
    with np.errstate(all="ignore"):
        nearest = np.where(steps == 0, 0, np.rint(-added / steps))
    points = np.clip(np.nan_to_num(nearest), 0, (1 << bits) - 1)
    left = added.astype(np.float64) + points * steps.astype(np.float64)
    kept = left.astype(np.float32) == left
    points = np.where(kept, points, 0).astype(np.uint8)
    offsets = np.where(kept, left, added).astype(np.float32)
    block = codes.shape[1] // steps.shape[1]
    return StoredBlocks(codes, steps, points, offsets if np.any(offsets) else None, bits, block)


def _q4_0(raw: Array) -> StoredBlocks:
    return StoredBlocks(_nibbles(raw[:, 2:]), _half(raw, 0), None, None, 4, 32)


def _q4_1(raw: Array) -> StoredBlocks:
    return _shifted(_nibbles(raw[:, 4:]), _half(raw, 0), _half(raw, 2), 4)


def _fifth(raw: Array, place: int) -> Array:
    """The fifth bit of 32 codes, of 4 bytes at a place: 0 or 16."""
    return np.unpackbits(raw[:, place : place + 4], axis=1, bitorder="little") << np.uint8(4)


def _q5_0(raw: Array) -> StoredBlocks:
    codes = _nibbles(raw[:, 6:]) | _fifth(raw, 2)
    zeros = np.full((len(raw), 1), 16, np.uint8)
    return StoredBlocks(codes, _half(raw, 0), zeros, None, 8, 32)


def _q5_1(raw: Array) -> StoredBlocks:
    found = _shifted(_nibbles(raw[:, 8:]) | _fifth(raw, 4), _half(raw, 0), _half(raw, 2), 5)
    return replace(found, bits=8)


def _q8_0(raw: Array) -> StoredBlocks:
    return StoredBlocks(raw[:, 2:] ^ np.uint8(128), _half(raw, 0), None, None, 8, 32)


def _six_bits(raw: Array) -> tuple[Array, Array]:
    """Scales and minima of 8 blocks, 6 bits each, from 12 bytes [blocks, 12]."""
    low, high, last = raw[:, :4], raw[:, 4:8], raw[:, 8:]
    scales = np.concatenate([low & 63, (last & 15) | (low >> 6) << 4], axis=1)
    minima = np.concatenate([high & 63, (last >> 4) | (high >> 6) << 4], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _paired(raw: Array) -> Array:
    """Codes of 4 bits: each 32 bytes have two blocks, the first one in the low halves."""
    parts = raw.reshape(len(raw), 4, 1, 32)
    return np.concatenate([parts & 15, parts >> 4], axis=2).reshape(len(raw), 256)


def _q4_k(raw: Array) -> StoredBlocks:
    scales, minima = _six_bits(raw[:, 4:16])
    return _shifted(_paired(raw[:, 16:]), _half(raw, 0) * scales, -(_half(raw, 2) * minima), 4)


def _q5_k(raw: Array) -> StoredBlocks:
    scales, minima = _six_bits(raw[:, 4:16])
    high = np.unpackbits(raw[:, 16:48, None], axis=2, bitorder="little")  # bit b is that of block b
    codes = _paired(raw[:, 48:]) | (high.transpose(0, 2, 1).reshape(len(raw), 256) << np.uint8(4))
    found = _shifted(codes, _half(raw, 0) * scales, -(_half(raw, 2) * minima), 5)
    return replace(found, bits=8)


def _q6_k(raw: Array) -> StoredBlocks:
    """Codes of 6 bits around 32; 16 blocks of 16 with int8 scales."""
    low = raw[:, :128].reshape(len(raw), 2, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2)
    high = raw[:, 128:192].reshape(len(raw), 2, 1, 32)
    high = np.concatenate([high >> np.uint8(shift) & 3 for shift in (0, 2, 4, 6)], axis=2)
    codes = low | (high.reshape(len(raw), 2, 128) << np.uint8(4))
    scales = _half(raw, 208) * np.ascontiguousarray(raw[:, 192:208]).view(np.int8).astype(np.float32)
    zeros = np.full(scales.shape, 32, np.uint8)
    return StoredBlocks(codes.reshape(len(raw), 256), scales, zeros, None, 8, 16)


def _bfloat16(raw: Array) -> Array:
    wide = np.ascontiguousarray(raw).view("<u2").astype(np.uint32) << np.uint32(16)
    return np.asarray(wide.view(np.float32))


FORMATS: dict[int, Format] = {
    0: Format("F32", 1, 4, floats=lambda raw: np.ascontiguousarray(raw).view("<f4").astype(np.float32)),
    1: Format(
        "F16",
        1,
        2,
        floats=lambda raw: np.ascontiguousarray(raw).view("<f2").astype(np.float32),
        half=ElementType.FLOAT16,
    ),
    2: Format("Q4_0", 32, 18, blocks=_q4_0),
    3: Format("Q4_1", 32, 20, blocks=_q4_1),
    6: Format("Q5_0", 32, 22, blocks=_q5_0),
    7: Format("Q5_1", 32, 24, blocks=_q5_1),
    8: Format("Q8_0", 32, 34, blocks=_q8_0),
    12: Format("Q4_K", 256, 144, blocks=_q4_k),
    13: Format("Q5_K", 256, 176, blocks=_q5_k),
    14: Format("Q6_K", 256, 210, blocks=_q6_k),
    30: Format("BF16", 1, 2, floats=_bfloat16, half=ElementType.BFLOAT16),
}
"""Formats that are read, by the numbers of ggml."""

NAMES = {9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
         19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
         23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64",
         28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4"}  # fmt: skip
"""Names of others."""
