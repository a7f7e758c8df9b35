"""Effort: choices measured on the calibration samples, by command and by API."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import qglow
from qglow.cli.main import main
from qglow.core.progress import Advance, Progress
from qglow.tuning.effort import EFFORTS
from tests.end_to_end.bits import assert_compiled_tensors_equal, interpreted_tensors
from tests.end_to_end.conftest import CALIBRATION, MODEL, TEST_DATA
from tests.runtimes import NATIVE_ISAS

SAMPLES = 48
QUIET = 0.01
"""Loudness of the quiet samples beside that of the others."""


@pytest.fixture(scope="module")
def balanced(tmp_path_factory: pytest.TempPathFactory, profile: Path) -> qglow.QuantizedModel:
    directory = tmp_path_factory.mktemp("effort") / "out"
    words = ["quantize", "--profile", profile, "--effort", "balanced", "-o", directory]
    words += ["--calibration-data", CALIBRATION, "--calibration-samples", SAMPLES]
    assert main([str(word) for word in words]) == 0
    return qglow.load_quantized(directory)


def sqnr(model: qglow.QuantizedModel) -> float:
    return qglow.compare(model, TEST_DATA).pairings[0].overall.sqnr_db


def test_the_outputs_come_closer_to_float(balanced: qglow.QuantizedModel, profile: Path) -> None:
    plain = qglow.load_model(MODEL).quantize(qglow.load_profile(profile), repair=False)
    assert sqnr(balanced) > sqnr(plain) + 1.0


def test_the_recipe_says_what_was_chosen_and_gives_the_same_again(
    balanced: qglow.QuantizedModel, profile: Path
) -> None:
    recipe = balanced.recipe
    assert recipe.rounding == "gptq"
    assert recipe.rules and all(
        rule.calibration is not None or rule.dtype == "int16" for rule in recipe.rules
    )
    again = qglow.load_model(MODEL).quantize(
        qglow.load_profile(profile),
        recipe,
        calibration_data=qglow.CalibrationSamples(CALIBRATION, samples=SAMPLES),
        repair=False,
    )
    assert again.text() == balanced.text()


def test_the_best_effort_keeps_some_nodes_in_float(balanced: qglow.QuantizedModel, profile: Path) -> None:
    samples = qglow.CalibrationSamples(CALIBRATION, samples=SAMPLES)
    model, taken = qglow.load_model(MODEL), qglow.load_profile(profile)
    best = model.quantize(taken, effort="best", calibration_data=samples)
    assert best.recipe.keep_float and sqnr(best) > sqnr(balanced)
    recipe = qglow.Recipe(assert_all_quantized=True)
    whole = model.quantize(taken, recipe, effort="best", calibration_data=samples)
    assert not whole.recipe.keep_float
    assert "int16" in [rule.dtype for rule in whole.recipe.rules] and sqnr(whole) > sqnr(balanced)


def interrupting(phase: int, steps: int) -> Progress:
    """Progress that brings Ctrl-C after so many steps of a phase."""
    phases = itertools.count(1)

    def start(total: int | None) -> Advance:
        taken, now = itertools.count(1), next(phases)

        def advance(count: int) -> None:
            if now == phase and next(taken) > steps:
                raise KeyboardInterrupt

        return advance

    return start


@pytest.mark.parametrize(
    ("phase", "steps", "what", "rounding", "warning"),
    [
        (2, 0, "choosing nodes for int16 and float", "nearest", "effort balanced was interrupted"),
        (3, 2, "rounding weights", "gptq", "rounding was interrupted before"),
    ],
)
def test_an_interruption_leaves_what_is_done(
    profile: Path,
    monkeypatch: pytest.MonkeyPatch,
    phase: int,
    steps: int,
    what: str,
    rounding: str,
    warning: str,
) -> None:
    monkeypatch.setitem(EFFORTS, "balanced", replace(EFFORTS["balanced"], candidates=("minmax", "kl")))
    told: list[str] = []
    made = qglow.load_model(MODEL).quantize(
        qglow.load_profile(profile),
        effort="balanced",
        check=False,
        calibration_data=qglow.CalibrationSamples(CALIBRATION, samples=1),
        progress=interrupting(phase, steps),
        interrupted=told.append,
    )
    assert told == [what] and made.recipe.rounding == rounding
    assert made.recipe.rules
    assert made.report is not None and any(warning in line for line in made.report.warnings)


def test_an_interrupted_command_writes_what_is_done(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("qglow.tuning.effort._with_ranges", interrupted)
    out = tmp_path / "out"
    words = ["quantize", "--profile", profile, "--effort", "balanced", "-o", out]
    words += ["--calibration-data", CALIBRATION, "--calibration-samples", 2]
    assert main([str(word) for word in words]) == 130
    assert qglow.load_quantized(out).recipe.rounding == "nearest"
    assert f"interrupted while choosing calibrations; {out} has" in capsys.readouterr().err


def test_what_the_user_says_of_a_value_holds(profile: Path) -> None:
    own = qglow.Rule(qglow.Match(name=".*"), calibration=qglow.Calibration.parse("percentile:97"))
    made = qglow.load_model(MODEL).quantize(
        qglow.load_profile(profile),
        qglow.Recipe(rules=(own,)),
        effort="balanced",
        calibration_data=qglow.CalibrationSamples(CALIBRATION, samples=8),
    )
    assert [rule for rule in made.recipe.rules if rule.calibration is not None] == [own]


def test_compiled_code_and_interpreter_have_the_same_bits(balanced: qglow.QuantizedModel) -> None:
    with np.load(TEST_DATA) as data:
        image = data["input"][:1]
    expected = interpreted_tensors(balanced.graph, {"input": image})
    assert_compiled_tensors_equal(balanced.graph, {"input": image}, NATIVE_ISAS[-1], expected)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--effort", "balanced"], "--calibration-data"),
        (["--effort", "balansed", "--calibration-data", CALIBRATION], "balanced"),
        (["--effort", "best", "--calibration-data", CALIBRATION, "--calibration-samples", "0"], "samples"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, profile: Path, words: list[object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["quantize", "--profile", profile, "-o", tmp_path / "out", *words]
    assert main([str(word) for word in given]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def of_loud_and_quiet_samples() -> bytes:
    """A linear layer whose second half makes up for quiet inputs, and another behind it."""
    random = np.random.default_rng(11)
    first = np.zeros((32, 32), np.float32)
    first[:16, :16], first[16:, 16:] = random.normal(size=(16, 16)), random.normal(size=(16, 16)) / QUIET
    weights = {"first": first, "second": random.normal(size=(32, 32)).astype(np.float32)}
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "first"], ["a"]),
        onnx.helper.make_node("Relu", ["a"], ["h"]),
        onnx.helper.make_node("MatMul", ["h", "second"], ["y"]),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 32]) for name in "xy"]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = onnx.helper.make_graph(nodes, "loud_and_quiet", ends[:1], ends[1:], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("effort", EFFORTS)
def test_an_effort_is_no_worse_than_the_default(effort: str) -> None:
    """It begins with what repair makes, and rounds weights besides."""
    drawn = np.random.default_rng(12).normal(size=(64, 32)).astype(np.float32)
    drawn[::2, 16:] = 0.0
    drawn[1::2, :16] = 0.0
    drawn[1::2] *= QUIET
    data, fresh = {"x": drawn[:32]}, drawn[32:]
    model = qglow.load_model(of_loud_and_quiet_samples())
    taken, wanted = model.profile(data), model.compile()({"x": fresh})["y"]
    default = model.quantize(taken)
    assert any("rows" in repair.what for repair in default.report.repairs)
    chosen = model.quantize(taken, effort=effort, calibration_data=data)
    errors = [np.square(each.compile()({"x": fresh})["y"] - wanted).sum() for each in (default, chosen)]
    assert chosen.recipe.rounding == "gptq" and errors[1] < 1.2 * errors[0]
    assert chosen.report.repairs == default.report.repairs
