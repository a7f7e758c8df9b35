"""Values whose channels were scaled have histograms of their own again, where the samples are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import qglow
from tests.end_to_end.conftest import CALIBRATION, MODEL

PASS = "profile-again"


def ranges(made: qglow.QuantizedModel) -> dict[str, float]:
    """The scale of every int8 value."""
    kinds = {v.name: v.type.quantization for v in made.graph.values() if not v.is_constant}
    return {name: kind.scale for name, kind in kinds.items() if kind is not None}


def scaled(made: qglow.QuantizedModel) -> set[str]:
    report = made.report
    assert report is not None
    return {entry.where for entry in report.log if entry.pass_name == PASS}


def test_a_calibration_sees_what_ranges_of_channels_do_not_tell(profile: Path) -> None:
    model, taken = qglow.load_model(MODEL), qglow.load_profile(profile)
    plain = model.quantize(taken, calibration="percentile:95", repair=False)
    assert not scaled(plain)
    again = model.quantize(
        taken, calibration="percentile:95", profile_again=True, calibration_data=CALIBRATION
    )
    names = scaled(again)
    before, after = ranges(plain), ranges(again)
    moved = {name for name in before if after[name] != before[name]}
    assert names and moved and all(after[name] < before[name] for name in names & moved)
    whole = model.quantize(taken, calibration="minmax", profile_again=True, calibration_data=CALIBRATION)
    known = ranges(model.quantize(taken, calibration="minmax", repair=False))
    assert ranges(whole) == pytest.approx(known, rel=1e-5)


def test_it_needs_the_samples(profile: Path) -> None:
    model, taken = qglow.load_model(MODEL), qglow.load_profile(profile)
    with pytest.raises(qglow.UsageError, match="calibration_data"):
        model.quantize(taken, profile_again=True)
