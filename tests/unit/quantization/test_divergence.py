"""The threshold with the least divergence: estimates leave out only what cannot be the best."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.numerics.schema import Schema
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile
from qglow.quantization import divergence
from qglow.quantization.divergence import least_divergence

_RANDOM = np.random.default_rng(0)
_MANY = _RANDOM.normal(size=3000)
SAMPLES = {
    "normal": _MANY,
    "one-sided": np.abs(_MANY),
    "rare extremes": np.append(_MANY, [1e4, -3e4]),
    "a comb": np.repeat(np.arange(-8.0, 9.0), 20),
    "only extremes": np.array([5.0, -7.0]),
    "tiny": _MANY[:40] * 1e-30,
    "long tails": _RANDOM.standard_cauchy(3000),
}


def distribution(samples: Array) -> Distribution:
    profile = ValueProfile()
    profile.observe(samples.astype(np.float32))
    return Distribution.of(profile)


@pytest.mark.parametrize("schema", [Schema.asymmetric, Schema.symmetric])
@pytest.mark.parametrize("name", SAMPLES)
def test_the_best_threshold_is_that_of_all_thresholds_computed_in_full(
    name: str, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = least_divergence(distribution(SAMPLES[name]), schema)
    monkeypatch.setattr(divergence, "_TOLERANCE", np.inf)
    assert found == least_divergence(distribution(SAMPLES[name]), schema)


@pytest.mark.parametrize("name", SAMPLES)
def test_few_thresholds_are_computed_in_full(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, whole = [], divergence._divergence

    def counted(*arguments: object) -> float:
        calls.append(arguments)
        return whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(divergence, "_divergence", counted)
    least_divergence(distribution(SAMPLES[name]), Schema.asymmetric)
    assert 1 <= len(calls) < 10


def test_elements_that_zero_swallows_keep_their_range(recwarn: pytest.WarningsRecorder) -> None:
    below = distribution(_MANY[:40] * 1e-41)
    assert least_divergence(below, Schema.asymmetric) == below.range
    assert not recwarn
