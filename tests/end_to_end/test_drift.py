"""`qglow profile drift` on the example."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import qglow
from tests.end_to_end.conftest import CALIBRATION, MODEL, TEST_DATA, Run

Capture = pytest.CaptureFixture[str]


def test_test_data_is_like_the_calibration_data(
    run: Run, profile: Path, tmp_path: Path, capsys: Capture
) -> None:
    target = tmp_path / "drift.json"
    assert run("profile", "drift", profile, "--data", TEST_DATA, "-o", target) == 0
    assert "0 of 20 values have drifted." in capsys.readouterr().out
    content = json.loads(target.read_text())
    assert content["drifted"] == [] and len(content["values"]) == 20
    losses = [value["loss_db"] for value in content["values"]]
    assert losses == sorted(losses, reverse=True)


def test_data_in_another_unit_exits_with_5(run: Run, profile: Path, tmp_path: Path, capsys: Capture) -> None:
    with np.load(TEST_DATA) as data:
        np.savez(tmp_path / "pixels.npz", input=data["input"][:50] * 16)
    assert run("profile", "drift", profile, "--data", tmp_path / "pixels.npz") == 5
    out, err = capsys.readouterr()
    assert "values have drifted from the profile: " in err and "'input' loses" in err
    assert "drifted" in out


def test_from_python_with_a_profile_of_the_new_data(profile: Path) -> None:
    before = qglow.load_profile(profile)
    now = qglow.load_model(before.model.path).profile(CALIBRATION, select="::2")
    report = qglow.profile_drift(before, now)
    assert report.samples_now < report.samples_before
    report.check(qglow.DriftLimits(loss_db=3.0))


def test_a_recipe_with_another_preprocessing_is_refused(
    run: Run, profile: Path, tmp_path: Path, capsys: Capture
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("preprocessing: {scale: 1/255}\n")
    assert run("profile", "drift", profile, "--data", TEST_DATA, "--recipe", recipe) == 2
    assert "preprocessing is not that of the profile" in capsys.readouterr().err


def test_a_model_that_has_moved_is_asked_for(
    run: Run, profile: Path, tmp_path: Path, capsys: Capture
) -> None:
    moved = tmp_path / "elsewhere" / "deeper" / "profile.yaml"
    moved.parent.mkdir(parents=True)
    moved.write_text(profile.read_text())
    assert run("profile", "drift", moved, "--data", TEST_DATA) == 4
    assert "(--model)" in capsys.readouterr().err
    assert run("profile", "drift", moved, "--data", TEST_DATA, "--model", MODEL) == 0
