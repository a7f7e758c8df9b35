from __future__ import annotations

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.numerics.affine import (
    affine_float,
    affine_int8,
    affine_multipliers,
    affine_steps,
    fold_statistics,
)
from tests.unit.numerics.oracle import ort, relative_error

SHAPE = (2, 5, 4, 3)


def statistics(rng: np.random.Generator) -> list[Array]:
    values = [rng.normal(size=5), rng.normal(size=5), rng.normal(size=5), rng.uniform(0.01, 3, 5)]
    return [v.astype(np.float32) for v in values]


def test_folded_statistics_compute_batch_normalization(rng: np.random.Generator) -> None:
    x, values = rng.normal(size=SHAPE).astype(np.float32), statistics(rng)
    r, t = fold_statistics(*values, epsilon=1e-3)
    assert r.dtype == t.dtype == np.float32
    expected = ort("BatchNormalization", [x, *values], epsilon=1e-3)
    assert relative_error(affine_float(x, r, t), expected) < 1e-6


def test_statistics_are_rounded_once(rng: np.random.Generator) -> None:
    scale, bias, mean, var = [v.astype(np.float64) for v in statistics(rng)]
    r, t = fold_statistics(scale, bias, mean, var, 1e-5)
    exact = scale / np.sqrt(var + 1e-5)
    np.testing.assert_array_equal(r, exact.astype(np.float32))
    np.testing.assert_array_equal(t, (bias - mean * exact).astype(np.float32))


def test_float_is_a_multiplication_and_an_addition_along_the_axis(rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 4, 5)).astype(np.float32)
    r, t = rng.normal(size=5).astype(np.float32), rng.normal(size=5).astype(np.float32)
    np.testing.assert_array_equal(affine_float(x, r, t, axis=2), x * r + t)
    np.testing.assert_array_equal(affine_float(x, r, t, axis=-1, lo=0.0), np.maximum(x * r + t, 0))


def test_int8_is_one_multiplication_and_one_addition_of_float32(rng: np.random.Generator) -> None:
    x = rng.integers(-128, 128, SHAPE).astype(np.int8)
    r, t = fold_statistics(*statistics(rng), epsilon=1e-5)
    x_quant, y_quant = Quantization.per_tensor(0.03, -7), Quantization.per_tensor(0.05, 20)
    result = affine_int8(x, x_quant, r, t, y_quant)
    factor = (np.float32(0.03) * r) / np.float32(0.05)
    shift = t / np.float32(0.05)
    by_channel = (5, 1, 1)
    value = (x.astype(int) + 7).astype(np.float32) * factor.reshape(by_channel) + shift.reshape(by_channel)
    np.testing.assert_array_equal(result, np.clip(np.rint(value) + 20, -128, 127))
    np.testing.assert_array_equal(affine_multipliers(x_quant, r, t, y_quant), (factor, shift))
    np.testing.assert_array_equal(affine_steps(x, -7, factor, shift, y_quant), result)
    bounded = affine_int8(x, x_quant, r, t, y_quant, lo=20, hi=90)
    np.testing.assert_array_equal(bounded, np.clip(result, 20, 90))


def test_int8_is_near_the_float_operator(rng: np.random.Generator) -> None:
    x = rng.integers(-128, 128, SHAPE).astype(np.int8)
    r, t = fold_statistics(*statistics(rng), epsilon=1e-5)
    x_quant, y_quant = Quantization.per_tensor(0.01, -7), Quantization.per_tensor(0.2, 0)
    real = affine_float((x.astype(np.float32) + 7) * np.float32(0.01), r, t) / 0.2
    result = affine_int8(x, x_quant, r, t, y_quant)
    assert np.max(np.abs(result - np.clip(real, -128, 127))) <= 0.5 + 1e-4
