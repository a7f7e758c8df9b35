"""`x * r[c] + t[c]`, one pair a channel: a BatchNormalization that folds into nothing.

See the ONNX operator BatchNormalization (inference).
"""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.numerics.elementwise import clip
from qglow.numerics.quantize import along, saturate_to
from qglow.numerics.requantize import multiplier


def fold_statistics(
    scale: Array, bias: Array, mean: Array, var: Array, epsilon: float
) -> tuple[Array, Array]:
    """float32 (r, t) of a BatchNormalization: those of `fold_statistics64`, rounded once."""
    r, t = fold_statistics64(scale, bias, mean, var, epsilon)
    return np.asarray(r.astype(np.float32)), np.asarray(t.astype(np.float32))


def fold_statistics64(
    scale: Array, bias: Array, mean: Array, var: Array, epsilon: float
) -> tuple[Array, Array]:
    """float64 (r, t) of a BatchNormalization: `r = scale / sqrt(var + epsilon)`, `t = bias - mean * r`."""
    wide = [np.asarray(a, np.float64) for a in (scale, bias, mean, var)]
    with np.errstate(all="ignore"):
        r = wide[0] / np.sqrt(wide[3] + float(epsilon))
        return np.asarray(r), np.asarray(wide[1] - wide[2] * r)


def affine_float(
    x: Array, r: Array, t: Array, axis: int = 1, lo: float = -math.inf, hi: float = math.inf
) -> Array:
    """float32 `x * r + t` along `axis`, a multiplication and an addition, within bounds."""
    x = np.asarray(x, np.float32)
    return clip(x * along(r, x.ndim, axis, np.float32) + along(t, x.ndim, axis, np.float32), lo, hi)


def affine_multipliers(
    x_quant: Quantization, r: Array, t: Array, y_quant: Quantization
) -> tuple[Array, Array]:
    """float32 `r' = (s_x * r) / s_y` and `t' = t / s_y`, left to right: r and t in steps of y."""
    shift = np.asarray(t, np.float32) / np.float32(y_quant.scale)
    return multiplier(x_quant.scale, r, y_quant.scale), np.asarray(shift, np.float32)


def affine_int8(
    x: Array,
    x_quant: Quantization,
    r: Array,
    t: Array,
    y_quant: Quantization,
    lo: int | None = None,
    hi: int | None = None,
    axis: int = 1,
) -> Array:
    """`float32(x - zp_x) * r' + t'` rounded to the type of y; r and t are those of the float operator."""
    factor, shift = affine_multipliers(x_quant, r, t, y_quant)
    return affine_steps(x, x_quant.zero_point, factor, shift, y_quant, lo, hi, axis)


def affine_steps(
    x: Array,
    zero_x: int,
    factor: Array,
    shift: Array,
    y_quant: Quantization,
    lo: int | None = None,
    hi: int | None = None,
    axis: int = 1,
) -> Array:
    """`float32(x - zp_x) * r' + t'` rounded to the type of y, from the pairs of `affine_multipliers`."""
    centred = (np.asarray(x).astype(np.int32) - zero_x).astype(np.float32)
    value = centred * along(factor, centred.ndim, axis, np.float32)
    value = value + along(shift, centred.ndim, axis, np.float32)
    return saturate_to(value, y_quant, lo, hi)
