"""`qglow profile sufficiency` on the example."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import CALIBRATION, MODEL, Run

Capture = pytest.CaptureFixture[str]


def test_the_command_tells_how_many_samples_are_enough(run: Run, tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "sufficiency.json"
    words = ("--calibration", "mse", "--samples", 64, "--resamples", 10, "-o", target)
    assert run("profile", "sufficiency", MODEL, "--data", CALIBRATION, *words) == 0
    out = capsys.readouterr().out
    content = json.loads(target.read_text())
    assert content["subsets"] == [2, 4, 8, 16, 32, 64] and len(content["values"]) == 20
    assert content["verdict"].split(";")[0] in " ".join(out.split())


def test_wrong_options_are_usage_errors(run: Run, capsys: Capture) -> None:
    words = ("profile", "sufficiency", MODEL, "--data", CALIBRATION, "--samples", 2)
    assert run(*words, "--tolerance", 0) == 2
    assert run(*words[:-1], 1) == 4
    assert "cannot tell how many are enough" in capsys.readouterr().err
