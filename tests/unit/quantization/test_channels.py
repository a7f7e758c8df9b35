"""Dead and outlier channels, from the ranges in a profile."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.channels import channel_ranges
from qglow.quantization.pipeline import quantize
from tests.unit.profiling.networks import profile_of, residual_network


def seen(array: Array) -> ValueProfile:
    profile = ValueProfile.of_shape(array.shape)
    profile.observe(array.astype(np.float32))
    return profile


def test_a_constant_channel_is_dead_and_a_large_one_an_outlier() -> None:
    array = np.random.default_rng(0).uniform(-1.0, 1.0, size=(4, 6, 50))
    array[:, 2] = 0.25
    array[:, 5] *= 40.0
    found = channel_ranges(seen(array))
    assert found is not None
    assert (found.channels, found.dead, found.outliers) == (6, (2,), (5,))
    assert 35.0 < found.largest < 45.0


def test_channels_of_like_range_are_neither() -> None:
    found = channel_ranges(seen(np.random.default_rng(1).normal(size=(8, 5, 20))))
    assert found is not None and not found.dead and not found.outliers
    assert 1.0 <= found.largest < 3.0


def test_nothing_but_dead_channels_has_no_outlier() -> None:
    found = channel_ranges(seen(np.ones((2, 3))))
    assert found is not None and found.dead == (0, 1, 2) and not found.outliers and found.largest == 1.0


def test_a_value_without_channels_has_no_findings() -> None:
    assert channel_ranges(seen(np.ones(4))) is None
    assert channel_ranges(ValueProfile.of_shape((1, 3))) is None


def test_the_report_of_quantization_has_them() -> None:
    tensors = {t.value: t for t in quantize(residual_network(), profile_of()).report.tensors}
    assert tensors["stem"].channels is not None and tensors["stem"].channels.channels == 8
