from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from qglow.core.types import Array, Quantization
from qglow.numerics.scalar.activations import Sigmoid, Tanh
from qglow.numerics.scalar.elementary import Exp
from qglow.numerics.tables import apply_table, build_table

X = Quantization.per_tensor(0.06, 9)
EVERY = np.arange(-128, 128, dtype=np.int8)


def test_sigmoid_table_is_the_nearest_step_of_every_input() -> None:
    y = Quantization.per_tensor(1 / 256, -128)
    table = build_table(Sigmoid().reference, X, y)
    assert table.shape == (256,) and table.dtype == np.int8
    for q in range(-128, 128):
        real = 1 / (1 + math.exp(-(q - 9) * X.scale)) / y.scale - 128
        assert abs(table[q + 128] - min(real, 127.0)) <= 0.5
    np.testing.assert_array_equal(apply_table(EVERY, table), table)


def test_identity_table_is_the_identity() -> None:
    np.testing.assert_array_equal(build_table(lambda x: x, X, X), EVERY)


@pytest.mark.parametrize(
    "function, zero, first", [(Tanh().reference, 0, -128), (Exp().reference, -128, -128)]
)
def test_tables_of_monotone_functions_are_monotone_and_saturate(
    function: Callable[[Array], Array], zero: int, first: int
) -> None:
    table = build_table(function, X, Quantization.per_tensor(1 / 128, zero))
    assert np.all(np.diff(table.astype(int)) >= 0)
    assert table[0] == first and table[-1] == 127


def test_ties_go_to_even_and_nan_to_the_zero_point() -> None:
    one, two = Quantization.per_tensor(1.0, 0), Quantization.per_tensor(2.0, 1)
    table = build_table(lambda x: x, one, two)
    assert [int(table[128 + q]) for q in (1, 3, 5, -1, -3)] == [1, 3, 3, 1, -1]

    def undefined(x: Array) -> Array:
        return np.log(x)

    logarithm = build_table(undefined, one, Quantization.per_tensor(0.1, 5))
    assert set(logarithm[:128].tolist()) == {5}
    assert logarithm[128] == -128 and logarithm[129] == 5


def test_tables_apply_to_any_shape(rng: np.random.Generator) -> None:
    table = rng.integers(-128, 128, 256).astype(np.int8)
    q = rng.integers(-128, 128, (2, 3, 4)).astype(np.int8)
    result = apply_table(q, table)
    assert result.shape == q.shape
    assert all(r == table[int(v) + 128] for r, v in zip(result.flat, q.flat, strict=True))
