"""Casts are defined for every value; relations know NaN."""

from __future__ import annotations

import numpy as np

from qglow.core.types import ElementType
from qglow.numerics.logic import RELATIONS, cast


def test_reals_lose_their_fraction_and_saturate() -> None:
    x = np.array([1.9, -1.9, 127.5, -128.9, 1e10, -1e30, np.inf, -np.inf, np.nan, 0.0], np.float32)
    assert cast(x, ElementType.INT8).tolist() == [1, -1, 127, -128, 127, -128, 127, -128, 0, 0]
    ends = 2**31 - 1, -(2**31)
    assert cast(x, ElementType.INT32).tolist() == [1, -1, 127, -128, *ends, *ends, 0, 0]
    largest = np.array([2.0**63, -(2.0**63)], np.float64)
    assert cast(largest, ElementType.INT64).tolist() == [2**63 - 1, -(2**63)]


def test_integers_wrap_and_reals_change_precision() -> None:
    assert cast(np.array([300, -129], np.int64), ElementType.INT8).tolist() == [44, 127]
    assert cast(np.array([1e300]), ElementType.FLOAT).tolist() == [np.inf]
    assert cast(np.array([True, False]), ElementType.FLOAT).tolist() == [1.0, 0.0]


def test_all_but_zero_is_true() -> None:
    x = np.array([0.0, -0.0, np.nan, 1e-45, -2.0], np.float32)
    assert cast(x, ElementType.BOOL).tolist() == [False, False, True, True, True]


def test_nan_is_only_unequal() -> None:
    nan = np.array([np.nan], np.float32)
    assert [name for name, relation in RELATIONS.items() if relation(nan, nan)[0]] == ["not-equal"]
