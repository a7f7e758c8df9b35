"""The four schemas by which a range of real values becomes a scale and a zero point."""

from __future__ import annotations

import enum
import math

import numpy as np

from qglow.core.types import ElementType, Quantization
from qglow.numerics.quantize import INT8_MAX, INT8_MIN

SMALLEST_SCALE = 2.0**-126
"""Smallest normal float32: no scale is subnormal."""


class Schema(enum.Enum):
    """Position of zero and the scales that are allowed. The value is the name in recipes.

    asymmetric: the range as it is. symmetric: zero point 0. symmetric_with_uint8: zero point
    0, but -128 when nothing is negative, so that no level is lost. symmetric_with_power2_scale:
    zero point 0 and the scale a power of two.
    """

    asymmetric = "asymmetric"
    symmetric = "symmetric"
    symmetric_with_uint8 = "symmetric_with_uint8"
    symmetric_with_power2_scale = "symmetric_with_power2_scale"


def choose_parameters(
    low: float, high: float, schema: Schema, element: ElementType = ElementType.INT8
) -> Quantization:
    """int8 or int16 parameters of the real range [low, high], widened to hold 0.

    int16 has zero point 0 under every schema: of 16 bits one can be spared. A range of nothing but 0 has
    scale 1. Scales are computed in float64, rounded to float32 and normal. Raises ValueError when a
    bound is not finite or low is above high.
    """
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise ValueError(f"[{low}, {high}] is not a range of finite values")
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    wide = element is ElementType.INT16
    if not wide and (schema is Schema.asymmetric or (schema is Schema.symmetric_with_uint8 and low == 0.0)):
        return _whole_range(low, high)
    least, most = (-(1 << 15), (1 << 15) - 1) if wide else (INT8_MIN, INT8_MAX)
    scale = max(low / least, high / most)
    if schema is Schema.symmetric_with_power2_scale and scale > 0.0:
        scale = _power_of_two_above(scale)
    return Quantization.per_tensor(_usable(scale), 0, element)


def _whole_range(low: float, high: float) -> Quantization:
    levels = INT8_MAX - INT8_MIN
    # From the range rather than the rounded scale: [-a, a] has zero point 0 for every a.
    width = max(high - low, levels * SMALLEST_SCALE)
    zero = round(INT8_MIN - low * levels / width)
    return Quantization.per_tensor(_usable((high - low) / levels), zero)


def _power_of_two_above(scale: float) -> float:
    mantissa, exponent = math.frexp(scale)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def _usable(scale: float) -> float:
    """A float32 that is a legal scale: 1 for an empty range, never subnormal."""
    if scale == 0.0:
        return 1.0
    return float(np.float32(max(scale, SMALLEST_SCALE)))
