"""New data against a profile: what moves, what leaves its range, what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from qglow.core.errors import ProfileError, RegressionError
from qglow.display.document import Document
from qglow.display.markdown import to_markdown
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.numerics.schema import Schema, choose_parameters
from qglow.profiling.distribution import Distribution
from qglow.profiling.engine import InterpreterEngine
from qglow.profiling.histogram import ValueProfile
from qglow.profiling.profile import Profile
from qglow.profiling.profiler import profile
from qglow.profiling.samples import Sample
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.report.drift import DriftLimits, DriftReport, compare_profiles, expected_sqnr_db
from qglow.report.drift_sections import drift_section
from tests.unit.profiling.networks import MODEL, residual_network, samples

COUNT = 60
MINMAX = Recipe(calibration=Calibration("minmax"))


def taken(given: Sequence[Sample], factor: float = 1.0) -> Profile:
    """A profile over samples, each times a factor."""
    data = [replace(s, inputs={"x": s.inputs["x"] * np.float32(factor)}) for s in given]
    return profile(residual_network(), data, InterpreterEngine(residual_network), model=MODEL)


def drifted(factor: float, options: Recipe = MINMAX) -> DriftReport:
    before, now = taken(samples(COUNT, 1)), taken(samples(COUNT, 2), factor)
    return compare_profiles(residual_network(), before, now, options)


def test_the_same_data_does_not_drift() -> None:
    before = taken(samples(20))
    report = compare_profiles(residual_network(), before, before, MINMAX)
    assert {"x", "stem", "depthwise", "total"} <= {drift.value for drift in report.values}
    for drift in report.values:
        assert (drift.distance, drift.loss_db, drift.regained_db) == (0.0, 0.0, 0.0)
        assert drift.outside_before == drift.outside_now == 0.0
    report.check(DriftLimits(0.0, 0.0, 0.0))


def test_other_data_of_the_same_kind_is_within_the_limits() -> None:
    report = drifted(1.0)
    report.check(DriftLimits(loss_db=4.5))
    assert all(drift.distance > 0.0 for drift in report.values)


def test_louder_data_leaves_the_ranges() -> None:
    [drift] = [found for found in drifted(3.0).ranked() if found.value == "x"]
    assert drift.outside_before == 0.0 and drift.outside_now > 0.1
    assert drift.loss_db > 10.0 and drift.regained_db > 10.0
    assert drift.seen_now[1] > 2.0 * drift.covered[1]


def test_quieter_data_stays_in_range_and_loses_its_levels() -> None:
    report = drifted(0.1)
    [drift] = [found for found in report.values if found.value == "x"]
    assert drift.outside_now == 0.0
    # A tenth of the amplitude at the same step.
    assert drift.loss_db == pytest.approx(20.0, abs=1.5)
    assert drift.regained_db == pytest.approx(20.0, abs=1.5)
    assert report.ranked()[0].loss_db == max(found.loss_db for found in report.values)


@pytest.mark.parametrize("factor", [0.05, 1.0, 4.0])
def test_the_predicted_sqnr_is_the_real_one(factor: float) -> None:
    random = np.random.default_rng(3)
    array = (random.normal(size=40_000) * factor).astype(np.float32)
    kind = choose_parameters(-3.0, 3.0, Schema.asymmetric)
    low, high = ((q - kind.zero_point) * kind.scale for q in (-128, 127))
    seen = ValueProfile()
    seen.observe(array)
    noise = dequantize_by(quantize_by(array, kind), kind).astype(np.float64) - array
    real = 10.0 * math.log10(float(np.sum(array.astype(np.float64) ** 2) / np.sum(noise**2)))
    assert expected_sqnr_db(Distribution.of(seen), (low, high)) == pytest.approx(real, abs=0.3)


def test_nothing_but_zero_loses_nothing() -> None:
    seen = ValueProfile()
    seen.observe(np.zeros(9, np.float32))
    assert expected_sqnr_db(Distribution.of(seen), (0.0, 1.0)) == math.inf


def test_each_limit_is_its_own() -> None:
    report = drifted(3.0)
    assert report.drifted(DriftLimits(loss_db=None, outside=0.05))
    assert report.drifted(DriftLimits(loss_db=None, distance=0.05))
    assert not report.drifted(DriftLimits(loss_db=None))
    with pytest.raises(RegressionError, match=r"of \d+ values have drifted.*' loses .* dB; .* and 5 more"):
        report.check(DriftLimits(loss_db=3.0))


def test_a_value_that_is_float_cannot_drift() -> None:
    rules = (Rule(Match(operator="Conv"), dtype="float"),)
    values = {drift.value for drift in drifted(1.0, replace(MINMAX, rules=rules)).values}
    assert "stem" not in values and "depthwise" in values  # which Add reads in int8


def test_a_profile_of_another_graph_is_refused() -> None:
    before = taken(samples(4))
    with pytest.raises(ProfileError, match="stale"):
        compare_profiles(residual_network(seed=5), before, before)


def test_the_section_marks_what_drifted() -> None:
    text = to_markdown(Document("drift", (drift_section(drifted(3.0)),)))
    assert "60 new samples against 60 of the profile" in text
    assert "drifted" in text and "values have drifted." in text
