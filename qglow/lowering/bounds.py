"""Fused Relu and Clip: real bounds of an operator as attributes of its instruction."""

from __future__ import annotations

import math

from qglow.core.types import TensorType
from qglow.numerics.requantize import quantized_bounds


def bounds(lo: float, hi: float, result: TensorType) -> dict[str, float | int]:
    """Attributes of an instruction: lo and hi for a float result, q_lo and q_hi for an integer one.

    Empty for an int8 result without bounds, since the defaults of q_lo and q_hi are the limits of int8.
    """
    if result.quantization is None:
        return {"lo": lo, "hi": hi}
    if math.isinf(lo) and math.isinf(hi) and not result.quantization.is_wide:
        return {}
    q_lo, q_hi = quantized_bounds(lo, hi, result.quantization)
    return {"q_lo": q_lo, "q_hi": q_hi}
