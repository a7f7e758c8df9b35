"""The verdict that ends `qglow quantize`: printed first, in every report, kept, and an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import qglow
from tests.end_to_end.conftest import CALIBRATION, MODEL, Run
from tests.zoo import zoo_path

Capture = pytest.CaptureFixture[str]
POOR = ("--calibration", "percentile:51", "--no-repair")


@pytest.fixture
def taken(run: Run, tmp_path: Path) -> Path:
    """A profile of the example with its samples beside it."""
    path = tmp_path / "p.yaml"
    assert run("profile", MODEL, "--data", CALIBRATION, "--samples", 40, "-o", path) == 0
    assert (tmp_path / "p.samples.npz").exists()
    return path


def test_the_verdict_comes_first(run: Run, taken: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    capsys.readouterr()
    assert run("quantize", "--profile", taken, "-o", out, "--min-sqnr", 20, "--strict") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Verdict: good\n") and "measured on 32 samples of the profile" in printed
    assert json.loads((out / "report.json").read_text())["verdict"]["word"] == "good"
    markdown = (out / "report.md").read_text()
    assert markdown.index("## Verdict: good") < markdown.index("## Model")
    html = (out / "report.html").read_text()
    assert html.index("Verdict: good") < html.index("SHA-256")
    verdict = qglow.load_quantized(out).verdict
    assert verdict is not None and verdict.samples == 32 and verdict.word == "good"
    made = qglow.load_model(MODEL).quantize(qglow.load_profile(taken)).verdict
    assert made == verdict


def test_a_poor_model_is_a_warning_and_written(
    run: Run, taken: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert run("quantize", "--profile", taken, "-o", tmp_path / "out", *POOR) == 0
    printed = capsys.readouterr()
    assert "Verdict: broken" in printed.out and "Outputs that suffer" in printed.out
    assert "clips" in printed.out and "warning: the int8 model is broken" in printed.err


@pytest.mark.parametrize("words", [("--strict",), ("--min-sqnr", 20)], ids=lambda words: words[0])
def test_limits_become_an_exit_code(
    run: Run, taken: Path, tmp_path: Path, capsys: Capture, words: tuple[object, ...]
) -> None:
    assert run("quantize", "--profile", taken, "-o", tmp_path / "out", *POOR, *words) == 1
    assert "qglow: error: the int8 model is broken" in capsys.readouterr().err
    assert qglow.load_quantized(tmp_path / "out").verdict is not None


@pytest.mark.parametrize("limit", ["nan", "inf", "-inf"])
def test_a_limit_that_holds_nothing_back_is_refused(
    run: Run, taken: Path, tmp_path: Path, capsys: Capture, limit: str
) -> None:
    assert run("quantize", "--profile", taken, "-o", tmp_path / "out", "--min-sqnr", limit) == 2
    assert "finite" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_missing_samples_leave_a_prediction(run: Run, taken: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "p.samples.npz").unlink()
    capsys.readouterr()
    assert run("quantize", "--profile", taken, "-o", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert "predicted from the profile" in printed and "p.samples.npz" in printed and "missing" in printed


def test_changed_samples_are_refused(run: Run, taken: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "p.samples.npz").write_bytes(b"other")
    assert run("quantize", "--profile", taken, "-o", tmp_path / "out") == 4
    assert "not the samples that the profile was written with" in capsys.readouterr().err


def test_no_samples_are_kept_of_private_data(run: Run, taken: Path, tmp_path: Path, capsys: Capture) -> None:
    assert (
        run("profile", MODEL, "--data", CALIBRATION, "--samples", 40, "-o", taken, "--keep-samples", 0) == 0
    )
    assert not (tmp_path / "p.samples.npz").exists()
    assert run("quantize", "--profile", taken, "-o", tmp_path / "out") == 0
    assert "The profile keeps no samples to measure on" in capsys.readouterr().out
    assert run("profile", MODEL, "--data", CALIBRATION, "-o", taken, "--keep-samples", -1) == 2


def test_kept_samples_are_data(run: Run, taken: Path, tmp_path: Path) -> None:
    assert run("run", MODEL, "--data", tmp_path / "p.samples.npz", "-o", tmp_path / "outputs.npz") == 0


@pytest.mark.slow
def test_a_model_that_the_default_calibration_harms_is_repaired(
    run: Run, tmp_path: Path, capsys: Capture
) -> None:
    """Of licence plates: `kl` cuts off what tells the characters apart."""
    model, data = zoo_path("models/lprnet.onnx"), zoo_path("data/lpr_ccpd.npz")
    with np.load(data) as arrays:
        pixels = arrays["x"][300:324].transpose(0, 3, 1, 2).astype(np.float32)
    np.savez(tmp_path / "plates.npz", input=(pixels - np.float32(127.5)) / np.float32(128))
    profile = tmp_path / "p.yaml"
    assert run("profile", model, "--data", tmp_path / "plates.npz", "-o", profile) == 0
    words = ["quantize", "--profile", profile, "-o"]
    assert run(*words, tmp_path / "plain", "--no-repair") == 0
    assert "Verdict: suspicious" in capsys.readouterr().out
    assert run(*words, tmp_path / "repaired") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Verdict: good\n") and "Repairs" in printed and "in place of kl" in printed
    repaired = qglow.load_quantized(tmp_path / "repaired")
    assert repaired.verdict is not None and repaired.verdict.sqnr_db is not None
    assert repaired.verdict.sqnr_db > 20.0
    again = qglow.load_model(model).quantize(qglow.load_profile(profile), repaired.recipe, repair=False)
    assert again.text() == repaired.text()
