"""int16 activations: their bytes, their parameters, and exact sums of their products."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from qglow.core.types import ElementType, Quantization
from qglow.numerics.conv import conv_accumulate
from qglow.numerics.linear import gemm_accumulate
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.numerics.requantize import INT32_MAX, rescale
from qglow.numerics.schema import Schema, choose_parameters
from qglow.numerics.wide import (
    LOW_ZERO,
    high_byte,
    high_parameters,
    join,
    low_byte,
    low_parameters,
    worst_sum,
)

WIDE = ElementType.INT16
ACTIVATIONS = arrays(np.int16, (3, 7), elements=st.integers(-32768, 32767))
WEIGHTS = arrays(np.int8, (7, 2), elements=st.integers(-127, 127))


@given(ACTIVATIONS)
def test_bytes_add_up_to_the_integer_and_their_reals_to_its_real(x: np.ndarray) -> None:
    high, low = high_byte(x), low_byte(x)
    assert high.dtype == low.dtype == np.int8
    np.testing.assert_array_equal(256 * high.astype(int) + (low.astype(int) - LOW_ZERO), x)
    q = Quantization.per_tensor(0.5, 0, WIDE)
    reals = dequantize_by(high, high_parameters(q)) + dequantize_by(low, low_parameters(q))
    np.testing.assert_array_equal(reals, dequantize_by(x, q))


@given(ACTIVATIONS, WEIGHTS, arrays(np.int32, 2, elements=st.integers(-(2**30), 2**30)))
def test_sums_of_bytes_join_to_the_exact_sum(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> None:
    exact = x.astype(object) @ w.astype(object) + bias
    low, high = gemm_accumulate(low_byte(x), LOW_ZERO, w, 0, bias), gemm_accumulate(high_byte(x), 0, w)
    np.testing.assert_array_equal(join(low, high).astype(object), exact)
    np.testing.assert_array_equal(gemm_accumulate(x, 0, w, 0, bias).astype(object), exact)
    worst = worst_sum(w, bias, Quantization.per_tensor(1.0, 0, WIDE), axis=1)
    assert np.all(np.abs(low).max(axis=0) <= worst) and np.all(np.abs(high).max(axis=0) <= worst)


def test_the_proof_is_of_the_larger_sum() -> None:
    w = np.full((1, 66000), 127, np.int8)
    q = Quantization.per_tensor(1.0, 0, WIDE)
    assert worst_sum(w, None, q)[0] == 66000 * 127 * 255 < INT32_MAX
    assert worst_sum(w, np.array([2**30], np.int32), q)[0] > INT32_MAX
    mixed = np.array([[127, -127]], np.int8)
    assert worst_sum(mixed, np.array([-100], np.int32), q)[0] == 127 * 255 + 100


def test_sums_of_smallest_integers_are_exact() -> None:
    """The magnitude of -32768 is no int16: a bound taken in int16 would choose float32."""
    x, w = np.full((1, 3, 5, 5), -32768, np.int16), np.full((1, 3, 5, 5), 127, np.int8)
    w[0, 0, 0, 0] = 126
    assert conv_accumulate(x, 0, w).item() == -32768 * (127 * 75 - 1)


@pytest.mark.parametrize("schema", list(Schema))
@given(st.floats(-1e3, 0), st.floats(1e-3, 1e3))
def test_parameters_have_zero_point_0_and_cover_the_range(schema: Schema, low: float, high: float) -> None:
    q = choose_parameters(low, high, schema, WIDE)
    assert q.element is WIDE and q.zero_point == 0
    ends = np.array([low, high], np.float32)
    assert np.all(np.abs(dequantize_by(quantize_by(ends, q), q) - ends) <= q.scale * 0.51)


@given(st.integers(-128, 127), st.integers(-128, 127), st.floats(1e-3, 1.0))
def test_int8_is_restored_after_a_rescale_to_int16(value: int, zero: int, scale: float) -> None:
    narrow = Quantization.per_tensor(scale, zero)
    reach = max(abs(end) for end in narrow.real_range)
    wide = choose_parameters(-reach, reach, Schema.symmetric, WIDE)
    q = np.array([value], np.int8)
    there = rescale(q, narrow, wide)
    assert there.dtype == np.int16
    np.testing.assert_array_equal(rescale(there, wide, narrow), q)


def test_other_types_have_no_parameters() -> None:
    with pytest.raises(ValueError, match="i32 has no quantization parameters"):
        Quantization.per_tensor(1.0, 0, ElementType.INT32)
