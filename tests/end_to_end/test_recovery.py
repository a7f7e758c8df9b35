"""Networks that plain int8 breaks, and that scaling channels brings back."""

from __future__ import annotations

from pathlib import Path

import pytest

import qglow
from qglow.report.comparison_result import FLOAT, INT8
from tests.end_to_end.conftest import CALIBRATION, TEST_DATA
from tests.end_to_end.outlier_networks import (
    DEPTHWISE,
    POOLING,
    RELU,
    RELU6,
    rescaled_digits,
    transformer,
)


def measured(
    model: qglow.Model, profile: qglow.Profile, recipe: qglow.Recipe | None = None
) -> tuple[float, float, float]:
    """Top-1 of float and int8 in per cent, and the SQNR of the outputs in dB."""
    found = qglow.compare(model.quantize(profile, recipe, repair=False), TEST_DATA)
    top1 = {name: 100 * found.accuracy[name].top1 for name in (FLOAT, INT8)}
    return top1[FLOAT], top1[INT8], found.pairings[0].overall.sqnr_db


def test_a_network_of_unequal_channels_comes_back_to_float(tmp_path: Path) -> None:
    places = RELU | POOLING | RELU6 | DEPTHWISE
    broken = qglow.load_model(rescaled_digits(tmp_path / "rescaled.onnx", places))
    profile = broken.profile(CALIBRATION)
    float_top1, plain, _ = measured(broken, profile, qglow.Recipe(equalize=False))
    assert float_top1 > 98.0
    assert plain < float_top1 - 3.0
    assert measured(broken, profile)[1] >= float_top1 - 1.0


def test_bounds_are_relaxed(tmp_path: Path) -> None:
    broken = qglow.load_model(rescaled_digits(tmp_path / "rescaled.onnx", RELU6))
    profile = broken.profile(CALIBRATION)
    assert measured(broken, profile, qglow.Recipe(equalize=False))[2] < 25.0
    assert measured(broken, profile)[2] > 32.0


def test_a_transformer_with_outlier_channels_comes_back_to_float(tmp_path: Path) -> None:
    broken = qglow.load_model(transformer(tmp_path / "transformer.onnx", CALIBRATION))
    profile = broken.profile(CALIBRATION)
    float_top1, plain, _ = measured(broken, profile, qglow.Recipe(smooth=False))
    assert plain < float_top1 - 20.0
    assert measured(broken, profile)[1] >= float_top1 - 1.0
    made = broken.quantize(profile, smooth=0.5, repair=False)
    assert made.report is not None and made.recipe.smooth == 0.5
    log = [entry for entry in made.report.log if entry.pass_name == "equalize-channels" and entry.applied]
    assert len(log) == 2


def test_products_that_measure_their_rows_are_smoothed_too(tmp_path: Path) -> None:
    """A row with an outlier has few levels for its other elements."""
    broken = qglow.load_model(transformer(tmp_path / "transformer.onnx", CALIBRATION))
    profile = broken.profile(CALIBRATION)
    levels = {}
    for smooth in (False, True):
        made = broken.quantize(profile, qglow.Recipe(smooth=smooth))
        assert made.report is not None and made.report.dynamic
        levels[smooth] = qglow.compare(made, TEST_DATA).pairings[0].overall.sqnr_db
    assert levels[True] > 25.0 and levels[True] > levels[False] + 10.0


def test_a_baseline_without_a_recipe_holds_the_model_that_quantize_makes(tmp_path: Path) -> None:
    """Repairs are measured too; a recipe is taken as it is."""
    place = transformer(tmp_path / "transformer.onnx", CALIBRATION)
    profile = qglow.load_model(place).profile(CALIBRATION)
    qglow.save_profile(profile, tmp_path / "profile.yaml")
    (tmp_path / "plain.yaml").write_text(qglow.Recipe().to_yaml())
    made = qglow.load_model(place).quantize(profile)
    assert made.report is not None and made.report.repairs
    baseline = tmp_path / "accuracy.yaml"
    sources = {
        "data": f"calibration: {CALIBRATION}",
        "profile": "profile: profile.yaml",
        "plain": f"calibration: {CALIBRATION}\n    recipe: plain.yaml",
    }
    entries = (
        f"  {name}:\n    model: transformer.onnx\n    {source}\n    data: {TEST_DATA}\n    metric: sqnr\n"
        for name, source in sources.items()
    )
    baseline.write_text("models:\n" + "".join(entries))
    found = {outcome.entry.name: outcome.measured for outcome in qglow.check_baseline(baseline).outcomes}
    default = qglow.compare(made, TEST_DATA).pairings[0].overall.sqnr_db
    values = {name: None if figures is None else figures.value for name, figures in found.items()}
    assert values["data"] == values["profile"] == pytest.approx(default, abs=1e-3)
    assert values["plain"] is not None and values["plain"] < default - 1.0
