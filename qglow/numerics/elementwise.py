"""Elementwise arithmetic, float and integer (rule 6 of the numeric contract).

Every operand and result of the functions called int8 may be int16 as well: parameters say which. Their
bounds are integers of the result's type; `quantized_bounds` makes them of real ones.
"""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.numerics.fixed_point import add_fixed
from qglow.numerics.quantize import dequantize_by, quantize_by, saturate_to
from qglow.numerics.requantize import multiplier, quantized_bounds, ratio, requantize, rescale
from qglow.numerics.scalar import clamps, polynomials
from qglow.numerics.scalar.arrays import evaluate


def clip(x: Array, lo: float = -math.inf, hi: float = math.inf) -> Array:
    """float32 `x` held within [lo, hi]; NaN passes, and so does the sign of zero."""
    return evaluate(lambda value: clamps.clip(value, lo, hi), x)


def relu(x: Array) -> Array:
    """float32 `x` where it is positive, else 0."""
    return clip(x, 0.0)


def add(a: Array, b: Array, lo: float = -math.inf, hi: float = math.inf) -> Array:
    """float32 `a + b` within bounds."""
    return clip(np.asarray(a, np.float32) + np.asarray(b, np.float32), lo, hi)


def sub(a: Array, b: Array, lo: float = -math.inf, hi: float = math.inf) -> Array:
    """float32 `a - b` within bounds."""
    return clip(np.asarray(a, np.float32) - np.asarray(b, np.float32), lo, hi)


def mul(a: Array, b: Array, lo: float = -math.inf, hi: float = math.inf) -> Array:
    """float32 `a * b` within bounds."""
    return clip(np.asarray(a, np.float32) * np.asarray(b, np.float32), lo, hi)


def div(a: Array, b: Array, lo: float = -math.inf, hi: float = math.inf) -> Array:
    """float32 `a / b` within bounds."""
    with np.errstate(all="ignore"):
        return clip(np.asarray(a, np.float32) / np.asarray(b, np.float32), lo, hi)


def power(a: Array, b: Array, lo: float = -math.inf, hi: float = math.inf) -> Array:
    """float32 `a^b` (polynomials.power) within bounds."""
    return clip(evaluate(polynomials.power, a, b), lo, hi)


def prelu(x: Array, slope: Array) -> Array:
    """float32 x, below 0 `slope * x`."""
    return evaluate(clamps.prelu, x, slope)


def maximum(a: Array, b: Array) -> Array:
    """The larger of both, of any one element type; NaN where either is."""
    return evaluate(clamps.larger, a, b) if a.dtype == np.float32 else np.where((a > b) | (a != a), a, b)


def minimum(a: Array, b: Array) -> Array:
    """The smaller of both, of any one element type; NaN where either is."""
    return evaluate(clamps.smaller, a, b) if a.dtype == np.float32 else np.where((a < b) | (a != a), a, b)


def add_int8(
    a: Array,
    a_quant: Quantization,
    b: Array,
    b_quant: Quantization,
    y_quant: Quantization,
    lo: int | None = None,
    hi: int | None = None,
) -> Array:
    """`float32(a - za) * (s_a / s_y) + float32(b - zb) * (s_b / s_y)`, rounded to int8."""
    if y_quant.fixed_point:
        return _placed(add_fixed(a, a_quant, b, b_quant, y_quant, 1), y_quant, lo, hi)
    value = _in_steps(a, a_quant, y_quant) + _in_steps(b, b_quant, y_quant)
    return saturate_to(value, y_quant, lo, hi)


def sub_int8(
    a: Array,
    a_quant: Quantization,
    b: Array,
    b_quant: Quantization,
    y_quant: Quantization,
    lo: int | None = None,
    hi: int | None = None,
) -> Array:
    """`float32(a - za) * (s_a / s_y) - float32(b - zb) * (s_b / s_y)`, rounded to int8."""
    if y_quant.fixed_point:
        return _placed(add_fixed(a, a_quant, b, b_quant, y_quant, -1), y_quant, lo, hi)
    value = _in_steps(a, a_quant, y_quant) - _in_steps(b, b_quant, y_quant)
    return saturate_to(value, y_quant, lo, hi)


def mul_int8(
    a: Array,
    a_quant: Quantization,
    b: Array,
    b_quant: Quantization,
    y_quant: Quantization,
    lo: int | None = None,
    hi: int | None = None,
) -> Array:
    """The exact product `(a - za) * (b - zb)` times `(s_a * s_b) / s_y`, rounded to int8."""
    product = _centred(a, a_quant) * _centred(b, b_quant)
    factor = multiplier(a_quant.scale, b_quant.scale, y_quant.scale)
    return requantize(product, factor, y_quant, lo, hi)


def div_int8(
    a: Array,
    a_quant: Quantization,
    b: Array,
    b_quant: Quantization,
    y_quant: Quantization,
    lo: int | None = None,
    hi: int | None = None,
) -> Array:
    """The float quotient of the reals, quantized; 0 / 0 gives the zero point."""
    value = div(dequantize_by(a, a_quant), dequantize_by(b, b_quant))
    return _quantized(value, y_quant, lo, hi)


def power_int8(
    a: Array,
    a_quant: Quantization,
    b: Array,
    b_quant: Quantization,
    y_quant: Quantization,
    lo: int | None = None,
    hi: int | None = None,
) -> Array:
    """The float power of the reals, quantized; NaN gives the zero point."""
    value = power(dequantize_by(a, a_quant), dequantize_by(b, b_quant))
    return _quantized(value, y_quant, lo, hi)


def prelu_int8(x: Array, x_quant: Quantization, slope: Array, y_quant: Quantization) -> Array:
    """`prelu` of the reals, quantized; the slope is float."""
    return quantize_by(prelu(dequantize_by(x, x_quant), slope), y_quant)


def max_int8(
    a: Array, a_quant: Quantization, b: Array, b_quant: Quantization, y_quant: Quantization
) -> Array:
    """The larger of both, each first rescaled to the result's parameters."""
    return np.maximum(rescale(a, a_quant, y_quant), rescale(b, b_quant, y_quant))


def min_int8(
    a: Array, a_quant: Quantization, b: Array, b_quant: Quantization, y_quant: Quantization
) -> Array:
    """The smaller of both, each first rescaled to the result's parameters."""
    return np.minimum(rescale(a, a_quant, y_quant), rescale(b, b_quant, y_quant))


def where_int8(
    condition: Array,
    a: Array,
    a_quant: Quantization,
    b: Array,
    b_quant: Quantization,
    y_quant: Quantization,
) -> Array:
    """Elements of `a` where the condition holds, else of `b`, rescaled to the result's parameters."""
    return np.where(condition, rescale(a, a_quant, y_quant), rescale(b, b_quant, y_quant))


def clip_int8(
    x: Array,
    x_quant: Quantization,
    y_quant: Quantization,
    lo_real: float = -math.inf,
    hi_real: float = math.inf,
) -> Array:
    """A rescale whose bounds are the int8 values of real `lo_real` and `hi_real`."""
    return rescale(x, x_quant, y_quant, *quantized_bounds(lo_real, hi_real, y_quant))


def relu_int8(x: Array, x_quant: Quantization, y_quant: Quantization) -> Array:
    """A rescale whose lower bound is the zero point of the result."""
    return clip_int8(x, x_quant, y_quant, 0.0)


def _quantized(value: Array, y_quant: Quantization, lo: int | None, hi: int | None) -> Array:
    """Rule 1 within bounds."""
    with np.errstate(all="ignore"):
        return saturate_to(value / np.float32(y_quant.scale), y_quant, lo, hi)


def _placed(steps: Array, y_quant: Quantization, lo: int | None, hi: int | None) -> Array:
    """Whole steps, int64, with the zero point, within bounds."""
    low, high = y_quant.smallest if lo is None else lo, y_quant.largest if hi is None else hi
    return np.asarray(np.clip(steps + y_quant.zero_point, low, high), y_quant.element.dtype)


def _centred(q: Array, quantization: Quantization) -> Array:
    return np.asarray(np.asarray(q).astype(np.int32) - quantization.zero_point)


def _in_steps(q: Array, quantization: Quantization, y_quant: Quantization) -> Array:
    """Reals of `q` in steps of `y_quant`, float32."""
    factor = ratio(quantization.scale, y_quant.scale)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(_centred(q, quantization).astype(np.float32) * factor)
