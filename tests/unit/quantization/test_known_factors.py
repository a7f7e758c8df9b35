"""Factors of channels that are kept for another run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from qglow.quantization.channel_factors import Factors
from qglow.quantization.known_factors import KeptFactors, kept_factors, known_factors


def test_numbers_come_back_to_the_bit() -> None:
    channels = np.array([1.0 / 3.0, 2.0**14, 5e-324, 1.0])
    found = Factors(channels, 0.1, math.inf, 1e-300, free=True)
    restored = known_factors(kept_factors({"a": found, "b": "no channel ranges of %x"}))
    assert list(restored) == ["a", "b"] and restored["b"] == "no channel ranges of %x"
    again = restored["a"]
    assert isinstance(again, Factors)
    assert again.channels.tobytes() == channels.tobytes() and again.channels.dtype == np.float64
    assert replace(again, channels=channels) == found
    assert again.worthwhile == found.worthwhile


@pytest.mark.parametrize("numbers", ["AAAA", "AAAAAAAAAAA=", "?"], ids=["cut", "too few", "no text"])
def test_damaged_numbers_are_refused(numbers: str) -> None:
    with pytest.raises(ValueError):
        known_factors((KeptFactors("a", "", numbers),))
