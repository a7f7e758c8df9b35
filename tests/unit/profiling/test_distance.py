"""The Wasserstein-1 distance of histograms against that of the samples themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.profiling.distance import wasserstein
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile


def distribution(values: object) -> Distribution:
    profile = ValueProfile()
    profile.observe(np.asarray(values, np.float32))
    return Distribution.of(profile)


def of_samples(first: Array, second: Array) -> float:
    """Of as many samples each: the mean distance of the sorted ones."""
    return float(np.mean(np.abs(np.sort(first) - np.sort(second))))


@pytest.mark.parametrize("shift", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_it_is_that_of_the_samples_to_a_bin(shift: float, scale: float) -> None:
    random = np.random.default_rng(0)
    first, second = random.normal(size=50_000), random.normal(shift, scale, size=50_000)
    found = wasserstein(distribution(first), distribution(second))
    assert found == pytest.approx(of_samples(first, second), rel=0.02, abs=0.003)


def test_single_values_are_as_far_apart_as_they_are() -> None:
    assert wasserstein(distribution([2.0] * 3), distribution([5.0])) == pytest.approx(3.0)
    assert wasserstein(distribution([-1.0]), distribution([1.0])) == pytest.approx(2.0)
    assert wasserstein(distribution([0.0, 1.0]), distribution([0.0])) == pytest.approx(0.5)


def test_it_is_symmetric_and_zero_for_the_same() -> None:
    random = np.random.default_rng(1)
    first, second = distribution(random.normal(size=100)), distribution(random.uniform(size=300))
    assert wasserstein(first, second) == pytest.approx(wasserstein(second, first))
    assert wasserstein(first, first) == 0.0


def test_how_many_samples_there_are_does_not_count() -> None:
    values = np.random.default_rng(2).normal(size=100)
    twice = distribution(np.concatenate([values, values]))
    assert wasserstein(distribution(values), twice) == pytest.approx(0.0, abs=1e-12)


def test_without_elements() -> None:
    empty = Distribution.of(ValueProfile())
    assert wasserstein(empty, empty) == 0.0
    assert wasserstein(empty, distribution([1.0])) == math.inf
