"""Weights in blocks: packing, and products in the order of the numeric contract."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.numerics.blocks import (
    block_fault,
    dequantized,
    gemm_blocks,
    gemm_integer_blocks,
    largest_block_sum,
    pack,
    packed_rows,
    unpack,
)

RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("depth", [1, 7, 16])
def test_codes_come_back(bits: int, depth: int) -> None:
    codes = RANDOM.integers(0, 1 << bits, (depth, 3)).astype(np.uint8)
    packed = pack(codes, bits)
    assert packed.shape == (packed_rows(depth, bits), 3) and packed.dtype == np.uint8
    assert np.array_equal(unpack(packed, bits, depth), codes)


def test_the_lowest_k_is_in_the_lowest_bits() -> None:
    assert pack(np.array([[1], [2], [3]]), 4).tolist() == [[0x21], [0x03]]
    assert pack(np.array([[1], [2], [3], [0], [1]]), 2).tolist() == [[0b00111001], [1]]


def nearest(value: Fraction) -> np.float32:
    """float32 nearest to a number, ties to even, by comparison with its neighbours."""
    found = np.float32(float(value))
    near = [found, np.nextafter(found, np.float32(np.inf)), np.nextafter(found, np.float32(-np.inf))]
    least = min(abs(Fraction(float(x)) - value) for x in near)
    best = [x for x in near if abs(Fraction(float(x)) - value) == least]
    return min(best, key=lambda x: int(x.view(np.uint32)) & 1)


def chain(x: Array, codes: Array, zeros: Array, scales: Array, block: int) -> np.float32:
    """Rule 12 for one row and one column, in exact fractions rounded after each multiply-add."""
    total = np.float32(0)
    for number, scale in enumerate(scales):
        part = np.float32(0)
        for k in range(number * block, min(len(x), (number + 1) * block)):
            weight = int(codes[k]) - int(zeros[number])
            part = nearest(Fraction(float(x[k])) * weight + Fraction(float(part)))
        total = nearest(Fraction(float(part)) * Fraction(float(scale)) + Fraction(float(total)))
    return total


def test_a_product_is_the_chain_of_the_contract() -> None:
    x = RANDOM.normal(size=(2, 37)).astype(np.float32)
    codes = RANDOM.integers(0, 16, (37, 5)).astype(np.uint8)
    zeros = RANDOM.integers(0, 16, (3, 5)).astype(np.uint8)
    scales = RANDOM.uniform(0.01, 1, (3, 5)).astype(np.float32)
    bias = RANDOM.normal(size=5).astype(np.float32)
    found = gemm_blocks(x, pack(codes, 4), scales, zeros, bias, 4, 16)
    for row in range(2):
        for column in range(5):
            sums = chain(x[row], codes[:, column], zeros[:, column], scales[:, column], 16)
            assert found[row, column] == sums + bias[column]


def test_zero_points_default_to_the_middle() -> None:
    codes = np.array([[0], [8], [15]], np.uint8)
    weights = dequantized(pack(codes, 4), np.array([[0.5]], np.float32), None, 3, 4, 16)
    assert weights.tolist() == [[-4.0], [0.0], [3.5]]


def test_sizes_that_are_not_supported_say_so() -> None:
    assert block_fault(4, 32) is None
    assert "3 bits" in str(block_fault(3, 32))
    for block in (8, 24, 512):
        assert f"blocks of {block}" in str(block_fault(4, block))


def test_a_product_of_integers_is_the_chain_of_the_contract() -> None:
    x = RANDOM.integers(-127, 128, (2, 37))
    codes = RANDOM.integers(0, 16, (37, 5)).astype(np.uint8)
    zeros = RANDOM.integers(0, 16, (3, 5)).astype(np.uint8)
    scales, rows = (RANDOM.uniform(0.01, 1, shape).astype(np.float32) for shape in ((3, 5), (2, 1)))
    bias = RANDOM.normal(size=5).astype(np.float32)
    found = gemm_integer_blocks(x, rows, pack(codes, 4), scales, zeros, bias, 4, 16)
    for row in range(2):
        for column in range(5):
            total = np.float32(0)
            for number in range(3):
                part = slice(16 * number, 16 * number + 16)
                exact = int(x[row, part] @ (codes[part, column].astype(int) - zeros[number, column]))
                factor = rows[row, 0] * scales[number, column]
                total = nearest(exact * Fraction(float(factor)) + Fraction(float(total)))
            assert found[row, column] == total + bias[column]


def test_rows_without_a_scale_give_nan() -> None:
    x, rows = np.zeros((2, 16), np.int8), np.array([[1.0], [np.nan]], np.float32)
    found = gemm_integer_blocks(
        x, rows, pack(np.ones((16, 3)), 4), np.ones((1, 3), np.float32), None, None, 4, 16
    )
    assert np.array_equal(np.isnan(found), [[False] * 3, [True] * 3])


def test_the_largest_sum_is_that_of_the_worst_block() -> None:
    codes = np.full((20, 2), 8, np.uint8)
    codes[:16, 0], codes[16:, 1] = 9, 15
    assert largest_block_sum(pack(codes, 4), None, 20, 4, 16) == 28 * 127
    assert largest_block_sum(pack(codes, 4), np.full((2, 2), 15, np.uint8), 20, 4, 16) == 16 * 7 * 127
