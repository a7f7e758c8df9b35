"""Mixed precision by command and by API, on the example."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.cli.main import main
from qglow.targets import capabilities
from qglow.targets.registry import select_target
from qglow.tuning.trials import Measurement
from scripts.benchmarks.measurements.decoding import own_shapes
from scripts.random_llama import LlamaSize, random_llama
from tests.end_to_end.conftest import CALIBRATION, MODEL, TEST_DATA, Run
from tests.unit.importer.tiny import save, tiny_model

SAMPLES = 64
HARSH = "calibration: percentile:97\nper_tensor: true\n"
"""Plain int8 loses by it what float nodes can bring back."""

RECIPE, TUNED, STATE = "harsh.yaml", "tuned.yaml", "tuned.yaml.state.json"

Tune = Callable[..., int]


def tune_in(folder: Path, run: Run, profile: Path, *words: object) -> int:
    """The command on few samples; it reads and writes in the folder."""
    given: list[object] = ["tune", "--profile", profile, "--data", TEST_DATA, "--samples", SAMPLES]
    given += ["--calibration-data", CALIBRATION, "--calibration-samples", 4, "--recipe", folder / RECIPE]
    return run(*given, "-o", folder / TUNED, *words)


@pytest.fixture(scope="module")
def finished(run: Run, profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the command has reached 25 dB, each float node taken to cost time.

    On some processors so small a model is as fast in float, and a measured time would choose no int8 at all.
    """
    folder = tmp_path_factory.mktemp("tune")
    (folder / RECIPE).write_text(HARSH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Measurement, "_latency_ms", lambda _, program: program.to_dict()["weight_bytes"] / 1e6)
        assert tune_in(folder, run, profile, "--min-sqnr", 25) == 0
    return folder


@pytest.fixture
def tune(run: Run, profile: Path, finished: Path, tmp_path: Path) -> Tune:
    """Runs the command in tmp_path, where there is the state of `finished`, but not its recipe."""
    for name in (RECIPE, STATE):
        shutil.copy(finished / name, tmp_path)
    return lambda *words: tune_in(tmp_path, run, profile, *words)


def forget_figures(folder: Path) -> None:
    """Leave what was predicted, but nothing that was measured."""
    (folder / STATE).write_text(json.dumps(state_of(folder) | {"figures": {}}))


def state_of(folder: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads((folder / STATE).read_text())
    return document


def sqnr(model: qglow.QuantizedModel) -> float:
    return qglow.compare(model, TEST_DATA, samples=SAMPLES).pairings[0].overall.sqnr_db


def test_the_recipe_reaches_the_goal_and_says_so(
    tune: Tune, tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune("--min-sqnr", 25) == 0
    out = capsys.readouterr().out
    assert "chosen" in out and "SQNR" in out and "top-1" in out
    text = (tmp_path / TUNED).read_text()
    assert text.startswith("# Found by qglow tune for SQNR of at least 25 dB")
    loaded, taken = qglow.load_model(MODEL), qglow.load_profile(profile)
    recipe = qglow.load_recipe(tmp_path / TUNED)
    assert (recipe.keep_float or recipe.rules) and recipe.per_tensor
    tuned = loaded.quantize(taken, recipe, repair=False)
    plain = loaded.quantize(taken, qglow.load_recipe(tmp_path / RECIPE), repair=False)
    assert sqnr(plain) < 25.0 <= sqnr(tuned)
    assert tuned.report is not None and plain.report is not None
    assert len(plain.report.quantized) >= len(tuned.report.quantized) > 0


def test_what_was_found_is_not_done_again_and_serves_another_goal(
    tune: Tune, tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = state_of(tmp_path)
    assert tune("--min-sqnr", 25) == 0
    assert "predicting" not in capsys.readouterr().err
    assert state_of(tmp_path) == first
    assert (tmp_path / TUNED).read_text() == (finished / TUNED).read_text()
    assert tune("--min-sqnr", 28) == 0
    later = state_of(tmp_path)
    assert later["steps"] == first["steps"]
    assert first["figures"].items() <= later["figures"].items()  # type: ignore[attr-defined]


def test_an_interrupted_search_goes_on(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, calls = Measurement.figures, []

    def interrupted(self: Measurement, *arguments: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Measurement, "figures", interrupted)
    forget_figures(tmp_path)
    assert tune("--min-sqnr", 25) == 130
    err = capsys.readouterr().err
    assert "interrupted while measuring a model; written: no recipe" in err
    assert "the same command goes on" in err
    assert not (tmp_path / TUNED).exists()
    before = state_of(tmp_path)
    assert len(before["figures"]) == 1  # type: ignore[arg-type]
    assert tune("--min-sqnr", 25) == 0
    after = state_of(tmp_path)
    assert len(calls) - 1 == len(after["figures"])  # type: ignore[arg-type]
    assert before["figures"].items() <= after["figures"].items()  # type: ignore[attr-defined]


def test_a_goal_out_of_reach_is_told_and_writes_no_recipe(
    tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune("--min-sqnr", 500) == 1
    captured = capsys.readouterr()
    assert "no recipe was found" in captured.err and "nothing is left to try" in captured.err
    assert "relative" in captured.out, "what was measured is shown all the same"
    assert not (tmp_path / TUNED).exists()
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]


def test_when_time_is_up_the_first_measurement_is_what_there_is(
    tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget_figures(tmp_path)
    assert tune("--min-sqnr", 25, "--time-limit", "0s") == 1
    assert "time is up" in capsys.readouterr().err
    assert list(state_of(tmp_path)["figures"]) == ["0"]  # type: ignore[call-overload]


def test_a_state_of_another_search_is_refused(
    tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (tmp_path / STATE).read_bytes()
    assert tune("--min-sqnr", 1, "--samples", SAMPLES - 1) == 4
    assert "another data" in capsys.readouterr().err
    (tmp_path / RECIPE).write_text(HARSH + "schema: symmetric\n")
    assert tune("--min-sqnr", 1) == 4
    assert "another recipe" in capsys.readouterr().err
    assert (tmp_path / STATE).read_bytes() == before


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "--max-drop"),
        (("--max-latency", "3"), 2, "5ms"),
        (("--max-drop", 1, "--time-limit", "soon"), 2, "5m"),
        (("--min-metric", 1), 2, "--metric"),
        (("--metric", "psnr", "--max-drop", 1), 2, "--min-metric"),
        (("--max-drop", 1, "--metric", "psnrr"), 2, "psnr"),
        (("--max-drop", 1, "--effort", "much"), 2, "balanced"),
        (("--max-drop", 1, "--labels", "none.npy"), 4, "none.npy"),
        (("--max-drop", 1, "--state", MODEL), 4, "digits.onnx"),
    ],
)
def test_what_does_not_fit_is_refused(
    tune: Tune, tmp_path: Path, words: tuple[object, ...], code: int, said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / STATE).unlink()
    assert tune(*words) == code
    err = capsys.readouterr().err
    assert said in err and "Traceback" not in err and "internal" not in err
    assert not (tmp_path / TUNED).exists()


def test_without_labels_accuracy_is_agreement_and_a_function_may_say_what_it_is(
    run: Run, profile: Path, tmp_path: Path
) -> None:
    with np.load(TEST_DATA) as data:
        images = data["input"][:16]
    with np.load(CALIBRATION) as data:
        calibration = qglow.CalibrationSamples({"input": data["input"][:1]})
    model, taken = qglow.load_model(MODEL), qglow.load_profile(profile)
    told: list[qglow.Trial] = []
    found = qglow.tune(
        model, taken, {"input": images}, qglow.Goal(max_drop=10.0), calibration_data=calibration,
        told=told.append,
    )  # fmt: skip
    first = found.trials[0].figures
    assert (first.measure, first.reference) == ("agreement", 100.0)
    assert found.best is not None and sorted(told, key=lambda trial: trial.steps) == list(found.trials)
    assert found.recipe.keep_float == found.best.keep_float

    def closeness(outputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
        return -float(np.abs(outputs["logits"] - expected["logits"]).max())

    limited = qglow.tune(
        model, taken, {"input": images}, qglow.Goal(min_metric=-1000.0), calibration_data=calibration,
        metric=closeness,
    )  # fmt: skip
    assert limited.trials[0].figures.measure == "closeness"
    assert limited.best is limited.trials[0] and limited.pareto() == list(limited.trials)


def test_nodes_that_quantization_adds_are_left_as_they_are(profile: Path) -> None:
    model, taken = qglow.load_model(MODEL), qglow.load_profile(profile)
    found = qglow.tune(
        model, taken, str(TEST_DATA), qglow.Goal(min_sqnr_db=500), samples=4,
        recipe=qglow.Recipe(group_size=16), calibration_data=qglow.CalibrationSamples(CALIBRATION, samples=1),
    )  # fmt: skip
    last = found.trials[-1]
    assert len(found.trials) > 2 and last.keep_float
    assert {*last.keep_float, *last.int16} <= {node.name for node in model.graph.nodes}


def test_the_help_says_what_the_exit_codes_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--help"]) == 0
    assert "Exits with 1" in capsys.readouterr().out


def perceptron(path: Path) -> Path:
    """Products of one row with many weights, which 16-bit floats make faster; int8 costs it 27 dB."""
    random = np.random.default_rng(0)
    sizes = {"w1": (512, 512), "w2": (512, 512), "w3": (512, 10)}
    weights = {name: random.normal(size=size).astype(np.float32) * 0.06 for name, size in sizes.items()}
    weights["w1"][:, ::7] *= 30.0
    nodes = [
        helper.make_node("Gemm", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Gemm", ["b", "w2"], ["c"], name="second"),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "w3"], ["y"], name="third"),
    ]
    return save(tiny_model(nodes, {"x": [1, 512]}, ["y"], weights), path)


def test_16_bit_floats_are_taken_where_they_are_faster(tmp_path: Path) -> None:
    if not capabilities.machine(select_target(None)).converts_half:
        return  # float32 is not slower there, and nothing is to be found
    model = qglow.load_model(perceptron(tmp_path))
    data = {"x": np.random.default_rng(1).normal(size=(48, 512)).astype(np.float32)}
    profile = model.profile(data, samples=32, threads=1)
    found = qglow.tune(model, profile, data, qglow.Goal(min_sqnr_db=60.0), calibration_data=data, threads=1)
    assert found.best is not None and found.best.mix.float16
    assert not found.best.mix.bfloat16, "as fast, and less exact"
    found.save_recipe(tmp_path / TUNED)
    tuned = model.quantize(profile, qglow.load_recipe(tmp_path / TUNED), repair=False, threads=1)
    assert qglow.compare(tuned, data).pairings[0].overall.sqnr_db >= 60.0
    halves = {weights.type.element.value for weights in tuned.graph.constants()}
    assert "f16" in halves
    assert found.to_frame()["float16"].tolist()[0] == 0


def test_a_drop_that_the_samples_cannot_tell_is_followed_by_sqnr(
    tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune("--max-drop", 0.2) == 0
    captured = capsys.readouterr()
    assert "A drop of 0.2 is noise on these samples" in captured.err
    assert "the search follows SQNR" in captured.out
    assert "is noise on these samples" in (tmp_path / TUNED).read_text()


def test_the_search_begins_with_the_model_that_quantize_makes(tmp_path: Path) -> None:
    path = save(random_llama(LlamaSize(layers=1, width=64, heads=4, groups=4, inner=64, words=99)), tmp_path)
    model = qglow.load_model(path, own_shapes(qglow.load_model(path)))
    random = np.random.default_rng(3)
    given = {n: random.normal(size=(4, *kind.shape[1:])).astype("f4") for n, kind in model.inputs.items()}
    given["input_ids"] = random.integers(0, 99, given["input_ids"].shape)
    given["attention_mask"] = np.ones(given["attention_mask"].shape, np.int64)
    given["position_ids"] = np.tile(np.arange(8, 16), (4, 1))
    data = {name: given[name] for name in model.inputs}
    profile = model.profile(data)
    wanted = model.quantize(profile).recipe.rules
    assert any(rule.dtype == "dynamic" for rule in wanted)
    found = qglow.tune(model, profile, data, qglow.Goal(min_sqnr_db=3.0), calibration_data=data)
    assert found.recipe.rules[: len(wanted)] == wanted
