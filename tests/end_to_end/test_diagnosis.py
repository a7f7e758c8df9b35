"""Why the example loses what it loses, and what was tried against it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import qglow
from tests.end_to_end.conftest import CALIBRATION, MODEL, TEST_DATA, Run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def rough(run: Run, profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with one range that is much too small."""
    folder = tmp_path_factory.mktemp("rough")
    recipe = folder / "rough.yaml"
    recipe.write_text('rules:\n  - {match: {name: "block1.0.relu"}, calibration: percentile:60}\n')
    words = ("--profile", profile, "--recipe", recipe, "--no-repair")
    assert run("quantize", *words, "-o", folder / "digits") == 0
    return folder / "digits"


def test_a_range_that_clips_is_found(rough: Path) -> None:
    model = qglow.load_quantized(rough)
    data = {"data": TEST_DATA, "samples": 8}
    found = qglow.diagnose(model, **data, layers=qglow.compare_layers(model, **data))
    worst = found.ranked()[0]
    assert worst.value == "block1.0.relu" and found.share(worst) > 0.5
    assert worst.noise.clipping > 10.0 * (worst.noise.rounding + worst.noise.weights)
    assert worst.rmse is not None and worst.rmse > 1.0
    assert worst.saturated is not None and worst.saturated > 0.01
    assert found.tried is None


def test_the_prediction_is_near_what_is_measured(quantized: Path) -> None:
    model = qglow.load_quantized(quantized)
    found = qglow.diagnose(model, TEST_DATA, samples=16)
    comparison = qglow.compare(model, TEST_DATA, samples=16)
    measured = comparison.pairing("qglow int8", "onnxruntime float32").overall.sqnr_db
    assert found.sqnr_db == pytest.approx(measured, abs=3.0)


def test_what_is_tried_is_measured_and_explain_tells(
    run: Run, rough: Path, profile: Path, capsys: Capture
) -> None:
    words = ("--data", TEST_DATA, "--samples", 8, "--layers", "--profile", profile, "-o", rough)
    assert run("compare", rough, *words) == 0
    assert "changes were tried on these samples; those that help:" in capsys.readouterr().out
    assert "Diagnosis over 8 samples" in (rough / "report.html").read_text()
    assert run("explain", rough, "block1.0.relu") == 0
    out = capsys.readouterr().out
    assert "place 1 of" in out and "something clips" in out and "on 'block1.0.relu': SQNR" in out
    tried = json.loads((rough / "report.json").read_text())["diagnosis"]["tried"]
    first = next(change for change in tried if change["where"] == "block1.0.relu")
    assert len(first["rules"]) == 1 and first["after_db"] > first["before_db"] + 1.0
    assert quantized_with(rough, profile, first["rules"]) == pytest.approx(first["after_db"], abs=0.05)


def quantized_with(rough: Path, profile: Path, rules: list[str]) -> float:
    """SQNR of the outputs of the example with more rules in the recipe."""
    own = qglow.load_quantized(rough).recipe.rules[0].to_document()
    recipe = rough.parent / "better.yaml"
    recipe.write_text(f"rules:\n  - {json.dumps(own)}\n" + "".join(rules))
    model = qglow.load_model(MODEL).quantize(
        qglow.load_profile(profile), qglow.load_recipe(recipe), repair=False
    )
    comparison = qglow.compare(model, TEST_DATA, samples=8)
    return comparison.pairing("qglow int8", "onnxruntime float32").overall.sqnr_db


def test_a_profile_without_layers_has_no_place(run: Run, quantized: Path, profile: Path) -> None:
    assert run("compare", quantized, "--data", CALIBRATION, "--profile", profile) == 2


def test_a_model_with_its_own_parameters_takes_no_profile(quantized: Path, profile: Path) -> None:
    model = qglow.load_model(quantized / "model.qdq.onnx").quantize()
    assert qglow.diagnose(model, TEST_DATA, samples=2).nodes
    with pytest.raises(qglow.UsageError, match="a profile has no place"):
        qglow.diagnose(model, TEST_DATA, samples=2, profile=qglow.load_profile(profile))
