from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.types import Quantization
from qglow.numerics.quantize import quantize_by
from qglow.numerics.schema import SMALLEST_SCALE, Schema, choose_parameters

BOUNDS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def real_ends(quant: Quantization) -> tuple[float, float]:
    return (-128 - quant.zero_point) * quant.scale, (127 - quant.zero_point) * quant.scale


@given(BOUNDS, BOUNDS, st.sampled_from(Schema))
def test_parameters_are_legal_and_cover_the_range_to_one_step(a: float, b: float, schema: Schema) -> None:
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    quant = choose_parameters(min(a, b), max(a, b), schema)
    assert quant.scale >= SMALLEST_SCALE and -128 <= quant.zero_point <= 127
    first, last = real_ends(quant)
    room = quant.scale * (0.5001 if quant.zero_point else 1e-4)
    assert first <= low + room and high - room <= last


@given(BOUNDS, BOUNDS, st.sampled_from(Schema))
def test_zero_is_exact(a: float, b: float, schema: Schema) -> None:
    quant = choose_parameters(min(a, b), max(a, b), schema)
    assert quantize_by(np.float32(0.0), quant) == quant.zero_point


@given(BOUNDS, BOUNDS)
def test_symmetric_has_zero_point_0_and_no_larger_scale_than_needed(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    quant = choose_parameters(low, high, Schema.symmetric)
    assert quant.zero_point == 0
    needed = max(-low / 128, high / 127)
    if needed > SMALLEST_SCALE:
        assert quant.scale == float(np.float32(needed))


@given(BOUNDS, BOUNDS)
def test_power_of_two_scale_is_the_smallest_that_covers_symmetric(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    quant = choose_parameters(low, high, Schema.symmetric_with_power2_scale)
    needed = max(-low / 128, high / 127, 0.0)
    assert quant.zero_point == 0 and math.frexp(quant.scale)[0] == 0.5
    if needed > SMALLEST_SCALE:
        assert quant.scale / 2 < needed <= quant.scale


@given(BOUNDS, BOUNDS)
def test_symmetric_with_uint8_spends_no_level_on_signs_that_do_not_occur(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    quant = choose_parameters(low, high, Schema.symmetric_with_uint8)
    if low < 0.0:
        assert quant == choose_parameters(low, high, Schema.symmetric)
    elif high > 0.0:
        assert quant.zero_point == -128
        assert quant.scale == max(float(np.float32(high / 255)), SMALLEST_SCALE)


@pytest.mark.parametrize("schema", Schema)
def test_a_range_of_zero_has_scale_1(schema: Schema) -> None:
    assert choose_parameters(0.0, 0.0, schema).scale == 1.0


def test_known_ranges() -> None:
    assert all(choose_parameters(-a, a, Schema.asymmetric).zero_point == 0 for a in (0.1, 1.0, 3.3e38))
    assert choose_parameters(0.0, 255.0, Schema.asymmetric) == Quantization.per_tensor(1.0, -128)
    assert choose_parameters(3.0, 255.0, Schema.asymmetric) == Quantization.per_tensor(1.0, -128)
    assert choose_parameters(-255.0, -7.0, Schema.asymmetric) == Quantization.per_tensor(1.0, 127)
    assert choose_parameters(-128.0, 0.0, Schema.symmetric) == Quantization.per_tensor(1.0, 0)
    assert choose_parameters(-3.0, 0.0, Schema.symmetric_with_power2_scale).scale == 2.0**-5


@pytest.mark.parametrize("low, high", [(math.nan, 1.0), (0.0, math.inf), (1.0, 0.0)])
def test_what_is_no_range_is_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="range"):
        choose_parameters(low, high, Schema.asymmetric)
