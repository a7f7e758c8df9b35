"""Rounding to reals of 16 bits, and their storage."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from qglow.core.types import HALF_TYPES, ElementType
from qglow.numerics.half import exact_element, holds, round_to, store, store_as, store_exactly, widen

PATTERNS = np.arange(0, 2**32, 6151, dtype=np.uint64).astype(np.uint32).view(np.float32)
NUMBERS = PATTERNS[~np.isnan(PATTERNS)]
OTHERS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ELEMENTS = list(OTHERS)


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint32)


@pytest.mark.parametrize("element", ELEMENTS)
def test_rounding_is_that_of_other_implementations(element: str) -> None:
    with np.errstate(over="ignore"):
        expected = NUMBERS.astype(OTHERS[element]).astype(np.float32)
    assert np.array_equal(bits(round_to(NUMBERS, element)), bits(expected))


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_number_of_the_type_stays_and_ties_go_to_the_even_one(element: str) -> None:
    every = widen(np.arange(2**16, dtype=np.uint16).view(HALF_TYPES[element].dtype))
    finite = np.sort(every[np.isfinite(every)])
    assert holds(finite, element) and np.array_equal(bits(widen(store(finite, element))), bits(finite))
    low, high = finite[:-1].astype(np.float64), finite[1:].astype(np.float64)
    between = ((low + high) / 2).astype(np.float32)
    between = between[(between.astype(np.float64) == (low + high) / 2) & (low < high)]
    nearest = round_to(between, element)
    assert between.size > 2**14 and not np.any(store(nearest, element).view(np.uint16) & 1)


def test_float16_overflows_to_infinity() -> None:
    x = np.array([65504.0, 65519.9, 65520.0, -65520.0, np.inf, 1e38], np.float32)
    expected = np.array([65504.0, 65504.0, np.inf, -np.inf, np.inf, np.inf], np.float32)
    assert np.array_equal(round_to(x, "float16"), expected)
    assert np.array_equal(round_to(np.float32([3.4e38]), "bfloat16"), np.float32([np.inf]))


@pytest.mark.parametrize("element", ELEMENTS)
def test_nan_stays_one_that_the_type_holds(element: str) -> None:
    nan = np.array([0x7F800001, 0xFFC00001, 0x7FFFFFFF], np.uint32).view(np.float32)
    found = round_to(nan, element)
    assert np.all(np.isnan(found)) and np.array_equal(np.signbit(found), np.signbit(nan))
    assert np.all(np.isnan(widen(store(nan, element)))) and holds(found, element)


def test_storage_takes_half_of_the_bytes() -> None:
    x = np.array([[1.5, -0.0], [2.0**-24, 3.0]], np.float32)
    for element, kind in (("float16", ElementType.FLOAT16), ("bfloat16", ElementType.BFLOAT16)):
        stored = store_as(x, kind)
        assert stored.dtype == kind.dtype and stored.shape == x.shape and kind.size == 2
        assert np.array_equal(bits(widen(stored)), bits(round_to(x, element)))
    assert holds(np.array(0.5, np.float32), "float16") and round_to(x[0, 0], "float16").shape == ()
    assert widen(x) is x and not holds(np.float32([0.1]), "float16")


@pytest.mark.parametrize("element", ELEMENTS)
def test_the_type_that_holds_all_numbers_is_found_and_gives_them_back(element: str) -> None:
    every = widen(np.arange(2**16, dtype=np.uint16).view(HALF_TYPES[element].dtype))
    quiet = every[~np.isnan(every)]
    found = exact_element(quiet)
    assert found is HALF_TYPES[element]
    assert np.array_equal(bits(widen(store_exactly(quiet, found))), bits(quiet))


def test_one_number_that_a_type_does_not_hold_is_seen_anywhere() -> None:
    for number in NUMBERS[::1009]:
        for size, place in ((1, 0), (40000, 39999)):
            x = np.zeros((size, 1), np.float32)
            x[place] = number
            fitting = [HALF_TYPES[e] for e in ("float16", "bfloat16") if holds(x[place], e)]
            assert exact_element(x) is (fitting[0] if fitting else None)


def test_numbers_of_both_types_together_are_of_none() -> None:
    assert exact_element(np.float32([1.0, 2.0**-20, 2.0**20])) is ElementType.BFLOAT16
    assert exact_element(np.float32([1.0 + 2.0**-10, 2.0**-20])) is ElementType.FLOAT16
    assert exact_element(np.float32([1.0 + 2.0**-10, 2.0**20])) is None
    assert exact_element(np.float32([])) is ElementType.FLOAT16


def test_nan_keep_their_bits_on_every_processor() -> None:
    """Also signalling ones, which instructions for it make quiet."""
    nan = np.array([0x7C01, 0x7DFF, 0x7E00, 0x7FFF, 0xFC01], np.uint16)
    wide = widen(nan.view(np.float16))
    assert [hex(bits) for bits in wide.view(np.uint32)] == [
        "0x7f802000",
        "0x7fbfe000",
        "0x7fc00000",
        "0x7fffe000",
        "0xff802000",
    ]
    one = widen(nan.view(np.float16)[0].reshape(()))
    assert one.shape == () and one.view(np.uint32) == 0x7F802000
    assert [hex(bits) for bits in store(wide, "float16").view(np.uint16)[2:4]] == ["0x7e00", "0x7fff"]
