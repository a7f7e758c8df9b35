"""Fixed point against gemmlowp's definition, in Python integers, and against float32."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.types import ElementType, Quantization
from qglow.numerics.elementwise import add_int8, mul_int8, sub_int8
from qglow.numerics.fixed_point import multiply, split, sum_multipliers
from qglow.numerics.requantize import requantize, rescale

INT32 = st.integers(-(2**31), 2**31 - 1)
FACTORS = st.floats(2.0**-126, 2.0**20, width=32)


def rounding_doubling_high_mul(a: int, b: int) -> int:
    """SaturatingRoundingDoublingHighMul of gemmlowp, in its words: a nudge, then division towards zero."""
    product = a * b
    nudged = product + (1 << 30 if product >= 0 else 1 - (1 << 30))
    return abs(nudged) // (1 << 31) * (1 if nudged >= 0 else -1)


def rounding_divide(x: int, exponent: int) -> int:
    """RoundingDivideByPOT of gemmlowp."""
    mask = (1 << exponent) - 1
    return (x >> exponent) + (1 if (x & mask) > (mask >> 1) + (x < 0) else 0)


@given(INT32, FACTORS)
def test_products_are_those_of_gemmlowp(total: int, factor: float) -> None:
    digits, exponent = (int(part) for part in split(factor))
    moved = max(-(2**31), min(2**31 - 1, total << max(exponent, 0)))
    expected = rounding_divide(rounding_doubling_high_mul(moved, digits), min(max(-exponent, 0), 31))
    assert int(multiply(np.array(total), factor)) == expected


@given(FACTORS)
def test_digits_are_the_multiplier_exactly(factor: float) -> None:
    digits, exponent = (int(part) for part in split(factor))
    if exponent >= -31:
        assert 2**30 <= digits < 2**31 and digits * 2.0 ** (exponent - 31) == factor
    else:
        assert digits == 0


@given(st.integers(-(2**24), 2**24), st.floats(2.0**-16, 1.0, width=32))
def test_results_are_within_a_step_of_float(total: int, factor: float) -> None:
    scale = Quantization.per_tensor(1.0, 3)
    fixed = Quantization((1.0,), (3,), fixed_point=True)
    one, other = (int(requantize(np.array([total]), factor, kind)[0]) for kind in (scale, fixed))
    assert abs(one - other) <= 1


def test_ties_and_two_roundings_differ_from_float() -> None:
    """Half to even against half away from zero, and 0.4999 that the first rounding makes a half."""
    kinds = Quantization.per_tensor(1.0, 0), Quantization((1.0,), (0,), fixed_point=True)
    totals = np.array([1, 3, 5, -1, -3, -5])
    assert [requantize(totals, 0.5, kind).tolist() for kind in kinds] == [
        [0, 2, 2, 0, -2, -2],
        [1, 2, 3, 0, -1, -2],
    ]
    assert [requantize(totals, 0.25, kind).tolist() for kind in kinds] == [
        [0, 1, 1, 0, -1, -1],
        [1, 1, 2, 0, -1, -1],
    ]


def test_sums_are_those_of_the_reference_kernel() -> None:
    """Operands 20 bits up, each to twice the larger scale, then to that of the result."""
    a, b, y = (
        Quantization((float(np.float32(s)),), (z,), fixed_point=True)
        for s, z in ((0.1, 3), (0.03, -7), (0.11, 5))
    )
    one, two, last = sum_multipliers(a.scale, b.scale, y.scale, 20)
    assert (one, two) == (0.5, float(np.float32(b.scale) / np.float32(2 * a.scale)))
    left, right = np.meshgrid(np.arange(-128, 128, dtype=np.int8), np.arange(-128, 128, dtype=np.int8))
    for sign, found in ((1, add_int8(left, a, right, b, y)), (-1, sub_int8(left, a, right, b, y))):
        parts = multiply((left.astype(int) - 3) << 20, one), multiply((right.astype(int) + 7) << 20, two)
        np.testing.assert_array_equal(
            found, np.clip(multiply(parts[0] + sign * parts[1], last) + 5, -128, 127)
        )
        real = (left.astype(float) - 3) * a.scale + sign * (right.astype(float) + 7) * b.scale
        assert np.abs(found - np.clip(np.rint(real / y.scale) + 5, -128, 127)).max() <= 1


def test_operands_of_16_bits_are_moved_less() -> None:
    wide = Quantization((float(np.float32(0.001)),), (0,), element=ElementType.INT16)
    y = Quantization((0.5,), (0,), fixed_point=True)
    x = np.array([-32768, 32767, 16000], np.int16)
    assert add_int8(x, wide, x, wide, y).tolist() == [-128, 127, 64]


def test_products_and_rescaling_saturate() -> None:
    x = Quantization((1.0,), (-128,), fixed_point=True)
    tiny = Quantization((2.0**-30,), (10,), fixed_point=True)
    q = np.array([-128, -127, 127], np.int8)
    assert rescale(q, x, tiny).tolist() == [10, 127, 127]
    assert mul_int8(q, x, q, x, tiny).tolist() == [10, 127, 127]
    assert rescale(q, tiny, x).tolist() == [-128, -128, -128]


def test_multipliers_beyond_float32_are_refused() -> None:
    with pytest.raises(ValueError, match="overflow float32"):
        sum_multipliers(3e38, 1.0, 1.0, 20)
