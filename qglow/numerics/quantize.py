"""Reals to integers and back (rules 1 and 2 of the numeric contract).

`real = scale * (q - zero_point)`; a float32 division, never a multiplication by the
reciprocal, and the clamp before the rounding, because compiled code may not convert a float
that is out of the integer's range. See the ONNX operators QuantizeLinear, DequantizeLinear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qglow.core.types import Array, Quantization

INT8_MIN = -128
INT8_MAX = 127


def along(values: Any, rank: int, axis: int | None, dtype: Any) -> Array:
    """`values` as an array that broadcasts along `axis` of a tensor of this rank.

    A scalar (or axis None) comes back without dimensions. Raises ValueError for a vector
    without an axis.
    """
    vector = np.asarray(values, dtype)
    if vector.ndim == 0:
        return vector
    if axis is None:
        if vector.size != 1:
            raise ValueError(f"{vector.size} parameters need an axis")
        return vector.reshape(())
    shape = [1] * rank
    shape[axis] = vector.size
    return vector.reshape(shape)


def saturate(
    value: Array,
    zero_point: Any,
    lo: int = INT8_MIN,
    hi: int = INT8_MAX,
    dtype: Any = np.int8,
) -> Array:
    """Clamp, round half to even, add the zero point; the end of every rule that makes integers.

    `value` is float32 in steps of the result; `dtype` an integer of at most 16 bits. The
    bounds are integers, so clamping first gives what clamping last would. NaN has no meaning
    here: it becomes the zero point.
    """
    zero = np.asarray(zero_point, np.int32)
    low = (lo - zero).astype(np.float32)
    high = (hi - zero).astype(np.float32)
    steps = np.asarray(np.maximum(value, low))
    np.minimum(steps, high, out=steps)
    np.rint(steps, out=steps)
    np.copyto(steps, 0.0, where=np.isnan(steps))
    np.add(steps, zero.astype(np.float32), out=steps)  # exact: all of them are integers of 17 bits
    return steps.astype(dtype)


def saturate_to(
    value: Array, quantization: Quantization, lo: int | None = None, hi: int | None = None
) -> Array:
    """`saturate` to the type and the zero point of one scale; bounds are those of the type unless given."""
    low = quantization.smallest if lo is None else lo
    high = quantization.largest if hi is None else hi
    return saturate(value, quantization.zero_point, low, high, quantization.element.dtype)


def quantize(
    x: Array,
    scale: Any,
    zero_point: Any,
    lo: int = INT8_MIN,
    hi: int = INT8_MAX,
    dtype: Any = np.int8,
    axis: int | None = None,
) -> Array:
    """`round_half_even(clamp(x / scale, lo - zp, hi - zp)) + zp` of float32 `x`; NaN gives zp.

    `scale` and `zero_point` are scalars, or vectors along `axis`.
    """
    x = np.asarray(x, np.float32)
    divisor = along(scale, x.ndim, axis, np.float32)
    zero = along(zero_point, x.ndim, axis, np.int32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return saturate(x / divisor, zero, lo, hi, dtype)


def dequantize(q: Array, scale: Any, zero_point: Any, axis: int | None = None) -> Array:
    """`float32(q - zp) * scale`, float32. Parameters are scalars, or vectors along `axis`."""
    q = np.asarray(q)
    zero = along(zero_point, q.ndim, axis, np.int64)
    factor = along(scale, q.ndim, axis, np.float32)
    return np.asarray((q.astype(np.int64) - zero).astype(np.float32) * factor)


def quantize_by(x: Array, quantization: Quantization) -> Array:
    """Integers of `x` under these parameters."""
    low, high, dtype = quantization.smallest, quantization.largest, quantization.element.dtype
    return quantize(x, *parameters(quantization), low, high, dtype, quantization.axis)


def dequantize_by(q: Array, quantization: Quantization) -> Array:
    """float32 of `q` under these parameters."""
    return dequantize(q, *parameters(quantization), axis=quantization.axis)


def parameters(quantization: Quantization) -> tuple[Array, Array]:
    """Scales (float32) and zero points (int64): without dimensions for a tensor, else vectors."""
    scales = np.array(quantization.scales, np.float32)
    zeros = np.array(quantization.zero_points, np.int64)
    if quantization.axis is None:
        return scales.reshape(()), zeros.reshape(())
    return scales, zeros


def count_nan(x: Array) -> int:
    """Number of NaN in a float tensor, which `quantize` would turn into the zero point."""
    return int(np.count_nonzero(np.isnan(x)))


def through_float(
    function: Callable[..., Array],
    inputs: Sequence[Array],
    quantizations: Sequence[Quantization],
    y_quant: Quantization,
) -> Array:
    """An integer operator that has no rule of its own: dequantize, the float operator, quantize."""
    reals = [dequantize_by(q, quantization) for q, quantization in zip(inputs, quantizations, strict=True)]
    return quantize_by(function(*reals), y_quant)


def as_unsigned(integers: Array) -> Array:
    """int8 as uint8, 128 more."""
    return np.asarray(integers.view(np.uint8) ^ np.uint8(128))


def as_signed(integers: Array) -> Array:
    """uint8 as int8, 128 less."""
    return np.asarray((integers ^ np.uint8(128)).view(np.int8))
