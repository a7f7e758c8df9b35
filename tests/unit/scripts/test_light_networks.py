"""The drawn networks are the same each time, and answer different inputs differently."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.report.oracle import OnnxruntimeModel
from scripts.benchmarks.models.drawn import drawn_samples
from scripts.benchmarks.models.light_networks import light_network


@pytest.mark.parametrize("name", ["squeezenet", pytest.param("shufflenet", marks=pytest.mark.slow)])
def test_network_is_the_same_each_time_and_no_constant(name: str) -> None:
    model = light_network(name)
    assert light_network(name).SerializeToString() == model.SerializeToString()
    [(key, samples)] = drawn_samples(model, 2).items()
    session = OnnxruntimeModel(model.SerializeToString())
    [first], [second] = (session({key: sample[None]}).values() for sample in samples)
    assert np.ptp(first) > 0 and np.all(np.isfinite(first))
    assert np.max(np.abs(first - second)) > 0.01 * np.ptp(first)
