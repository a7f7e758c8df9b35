"""Softmax and its logarithm in float32: the one polynomial exp and the one order of additions.

See the ONNX operators Softmax and LogSoftmax (opset 13 and later: along one axis).
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.numerics.reductions import interleaved_sum
from qglow.numerics.scalar.arrays import evaluate
from qglow.numerics.scalar.polynomials import exp_of_negative, log


def softmax_float(x: Array, axis: int = -1, masked_to_zero: bool = False) -> Array:
    """`e^(x - max) / sum`, the sum as `interleaved_sum` has it. An axis of nothing stays so.

    masked_to_zero: rows that would be NaN, as those of minus infinity alone, are zeros.
    """
    x = np.asarray(x, np.float32)
    if not x.size:
        return x
    with np.errstate(invalid="ignore"):
        shifted = x - np.max(x, axis=axis, keepdims=True)
        powers = evaluate(exp_of_negative, shifted)
        total = np.expand_dims(interleaved_sum(powers, axis), axis)
        shares = np.asarray(powers / total)
        return np.where(np.isnan(total), np.float32(0.0), shares) if masked_to_zero else shares


def log_softmax_float(x: Array, axis: int = -1) -> Array:
    """`(x - max) - ln sum`, the sum as in `softmax_float`. An axis of nothing stays so."""
    x = np.asarray(x, np.float32)
    if not x.size:
        return x
    with np.errstate(invalid="ignore"):
        shifted = x - np.max(x, axis=axis, keepdims=True)
        total = interleaved_sum(evaluate(exp_of_negative, shifted), axis)
        return np.asarray(shifted - np.expand_dims(evaluate(log, total), axis))
