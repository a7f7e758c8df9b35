"""Rounding of weights that looks at the calibration samples once more, by command and by API."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qglow
from qglow.cli.main import main
from tests.end_to_end.conftest import CALIBRATION, MODEL, TEST_DATA


@pytest.fixture(scope="module")
def float_model() -> qglow.Model:
    return qglow.load_model(MODEL)


@pytest.fixture(scope="module")
def taken(float_model: qglow.Model) -> qglow.Profile:
    return float_model.profile(CALIBRATION)


@pytest.fixture(scope="module")
def rounded(float_model: qglow.Model, taken: qglow.Profile) -> qglow.QuantizedModel:
    return float_model.quantize(taken, rounding="gptq", calibration_data=CALIBRATION, repair=False)


def sqnr(model: qglow.QuantizedModel) -> float:
    return qglow.compare(model, TEST_DATA).pairings[0].overall.sqnr_db


def test_the_outputs_come_closer_to_float(
    float_model: qglow.Model, taken: qglow.Profile, rounded: qglow.QuantizedModel
) -> None:
    assert sqnr(rounded) > sqnr(float_model.quantize(taken, repair=False)) + 0.2


def test_learned_rounding_is_near_or_better(
    float_model: qglow.Model, taken: qglow.Profile, rounded: qglow.QuantizedModel
) -> None:
    learned = float_model.quantize(taken, rounding="adaround", calibration_data=CALIBRATION, repair=False)
    assert learned.text() != rounded.text()
    assert sqnr(learned) > sqnr(rounded) - 0.3


def test_compiled_code_and_interpreter_have_the_same_bits(rounded: qglow.QuantizedModel) -> None:
    with np.load(TEST_DATA) as data:
        image = data["input"][:1]
    expected = rounded.interpret({"input": image})["logits"]
    assert np.array_equal(rounded.compile()({"input": image})["logits"], expected)


def test_the_command_gives_what_the_api_gives(
    tmp_path: Path, profile: Path, rounded: qglow.QuantizedModel
) -> None:
    words = ["quantize", "--profile", profile, "--no-repair", "--rounding", "gptq", "-o", tmp_path / "out"]
    assert main([str(word) for word in [*words, "--calibration-data", CALIBRATION]]) == 0
    found = qglow.load_quantized(tmp_path / "out")
    assert found.recipe.rounding == "gptq"
    assert found.text() == rounded.text()


def test_a_budget_that_is_too_small_is_told_and_the_state_goes_on_from_there(
    tmp_path: Path,
    profile: Path,
    float_model: qglow.Model,
    taken: qglow.Profile,
    rounded: qglow.QuantizedModel,
    capsys: pytest.CaptureFixture[str],
) -> None:
    state = tmp_path / "rounding.npz"
    words = ["quantize", "--profile", profile, "--no-repair", "--rounding", "gptq", "-o", tmp_path / "out"]
    words += ["--calibration-data", CALIBRATION, "--rounding-state", state]
    assert main([str(word) for word in [*words, "--rounding-budget", "0s"]]) == 0
    assert "warning: time for rounding was up before" in capsys.readouterr().err
    found = qglow.load_quantized(tmp_path / "out")
    assert found.recipe.rounding_budget == 0.0
    assert found.text() == float_model.quantize(taken, repair=False).text()
    assert main([str(word) for word in words]) == 0
    assert qglow.load_quantized(tmp_path / "out").text() == rounded.text()
    again = [*words, "--no-correct-bias"]
    assert main([str(word) for word in again]) != 0
    assert "rounding with another" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rounding-budget", "10m"], "--rounding gptq"),
        (["--rounding-state", "r.npz"], "--rounding gptq"),
        (["--rounding", "gptq", "--rounding-budget", "10d"], "--rounding-budget 10d: write 5s or 5m or 5h"),
        (["--rounding", "gptq"], "--calibration-data"),
        (["--rounding", "up", "--calibration-data", CALIBRATION], "gptq"),
        (["--calibration-samples", "3"], "--calibration-data"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, profile: Path, words: list[object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["quantize", "--profile", profile, "--no-repair", "-o", tmp_path / "out", *words]
    assert main([str(word) for word in given]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_baseline_may_name_a_recipe_that_needs_the_samples(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("rounding: gptq\n")
    (tmp_path / "accuracy.yaml").write_text(
        "models:\n"
        "  digits:\n"
        f"    model: {MODEL}\n"
        f"    calibration: {CALIBRATION}\n"
        "    recipe: recipe.yaml\n"
        f"    data: {TEST_DATA}\n"
        "    metric: sqnr\n"
        "    tolerance: 0.1\n"
    )
    report = qglow.check_baseline(tmp_path / "accuracy.yaml", update=True)
    [outcome] = report.outcomes
    assert outcome.verdict.value == "New"
