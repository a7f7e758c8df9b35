"""Damaged files of every kind, as commands meet them: one line, the documented exit code, no output."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.end_to_end.conftest import CALIBRATION, MODEL, TEST_DATA, Run
from tests.fuzzing import examples

Capture = pytest.CaptureFixture[str]
USAGE, UNSUPPORTED, BAD_FILE = 2, 3, 4
PHASES = [Phase.explicit, Phase.generate]
"""Without looking for a smaller example, which would take minutes of whole commands."""
SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def assert_one_error(capsys: Capture, code: int, allowed: tuple[int, ...], output: Path) -> None:
    """Success with an output, or one error and none."""
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    if code == 0:
        assert output.exists()
        return
    assert code in allowed, err
    errors = [line for line in err.splitlines() if line.startswith("qglow: ")]
    assert len(errors) == 1 and errors[0].startswith("qglow: error: "), err
    assert not output.exists() and not list(output.parent.glob("*.tmp"))


def fresh(path: Path) -> Path:
    """The place of an output, empty."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


@pytest.mark.parametrize("share", [0.0, 1e-4, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.9999])
def test_model_that_was_cut(run: Run, capsys: Capture, profile: Path, tmp_path: Path, share: float) -> None:
    whole = MODEL.read_bytes()
    path, output = tmp_path / "cut.onnx", tmp_path / "out"
    path.write_bytes(whole[: int(share * len(whole))])
    for words in (
        ("profile", path, "--data", CALIBRATION, "-o", output),
        ("quantize", path, "--profile", profile, "-o", output),
        ("compile", path, "-o", output),
    ):
        code = run(*words)
        assert code != 0
        assert_one_error(capsys, code, (UNSUPPORTED, BAD_FILE), output)


# Names, shapes and wires lie at the beginning and the end of the file; between them are numbers.
PLACES = st.one_of(st.integers(0, 4000), st.integers(-200, -1), st.integers(4000, 90_000))


@settings(max_examples=examples(25), phases=PHASES, suppress_health_check=SHARED)
@given(changes=st.lists(st.tuples(PLACES, st.integers(1, 255)), min_size=1, max_size=4))
def test_model_whose_bytes_changed(
    run: Run, capsys: Capture, profile: Path, tmp_path: Path, changes: list[tuple[int, int]]
) -> None:
    """It is still a model of some kind, or it is refused. Its profile is one of another model."""
    data = bytearray(MODEL.read_bytes())
    for place, flipped in changes:
        data[place] ^= flipped
    path, output = tmp_path / "changed.onnx", fresh(tmp_path / "out")
    path.write_bytes(data)
    code = run("quantize", path, "--profile", profile, "-o", output)
    assert_one_error(capsys, code, (USAGE, UNSUPPORTED, BAD_FILE), output)


@settings(max_examples=examples(20), phases=PHASES, suppress_health_check=SHARED)
@given(place=st.floats(0.0, 1.0, exclude_max=True), flipped=st.integers(1, 127), cut=st.booleans())
def test_profile_that_changed(
    run: Run, capsys: Capture, profile: Path, tmp_path: Path, place: float, flipped: int, cut: bool
) -> None:
    data = bytearray(profile.read_bytes())
    index = int(place * len(data))
    if cut:
        data = data[:index]
    else:
        data[index] ^= flipped
    path, output = tmp_path / "profile.yaml", fresh(tmp_path / "out")
    path.write_bytes(data)
    code = run("quantize", MODEL, "--profile", path, "-o", output)
    assert_one_error(capsys, code, (USAGE, BAD_FILE), output)
    assert code != 0 or not cut or data.rstrip() == profile.read_bytes().rstrip()


@settings(max_examples=examples(20), phases=PHASES, suppress_health_check=SHARED)
@given(place=st.floats(0.0, 1.0, exclude_max=True), flipped=st.integers(1, 255))
def test_program_that_changed(
    run: Run, capsys: Capture, quantized: Path, tmp_path: Path, place: float, flipped: int
) -> None:
    data = bytearray((quantized / "model.qglow").read_bytes())
    data[int(place * len(data))] ^= flipped
    path, output = tmp_path / "changed.qglow", fresh(tmp_path / "outputs.npz")
    path.write_bytes(data)
    code = run("run", path, "--data", TEST_DATA, "--samples", 1, "-o", output)
    assert_one_error(capsys, code, (BAD_FILE,), output)


@pytest.mark.parametrize("command", ["profile", "quantize", "compile", "inspect"])
@pytest.mark.parametrize("damage", ["missing", "short", "outside"])
def test_external_data(
    run: Run, capsys: Capture, profile: Path, tmp_path: Path, command: str, damage: str
) -> None:
    path, weights, output = tmp_path / "model.onnx", tmp_path / "weights.bin", tmp_path / "out"
    onnx.save_model(
        onnx.load(MODEL), path, save_as_external_data=True, location=weights.name, size_threshold=0
    )
    if damage == "missing":
        weights.unlink()
    elif damage == "short":
        weights.write_bytes(weights.read_bytes()[:1000])
    else:
        model = onnx.load(path, load_external_data=False)
        for entry in model.graph.initializer[0].external_data:
            entry.value = "../elsewhere.bin" if entry.key == "location" else entry.value
        onnx.save(model, path)
    words = {
        "profile": ("profile", path, "--data", CALIBRATION, "-o", output),
        "quantize": ("quantize", path, "--profile", profile, "-o", output),
        "compile": ("compile", path, "-o", output),
        "inspect": ("inspect", path),
    }[command]
    code = run(*words)
    assert code == BAD_FILE
    assert_one_error(capsys, code, (BAD_FILE,), output)


def data_file(path: Path, images: np.ndarray) -> Path:
    np.savez(path, input=images, label=np.zeros(len(images), np.int64))
    return path


@pytest.mark.parametrize("command", ["profile", "quantize", "compare", "run", "check"])
@pytest.mark.parametrize(
    ("images", "said"),
    [
        (np.full((2, 1, 8, 8), np.nan, np.float32), "NaN"),
        (np.zeros((2, 1, 8, 9), np.float32), "[1, 8, 8]"),
        (np.zeros((0, 1, 8, 8), np.float32), "no samples"),
    ],
    ids=["NaN", "shape", "nothing"],
)
def test_data_that_does_not_fit(
    run: Run,
    capsys: Capture,
    profile: Path,
    quantized: Path,
    tmp_path: Path,
    command: str,
    images: np.ndarray,
    said: str,
) -> None:
    path, output = data_file(tmp_path / "bad.npz", images), tmp_path / "out"
    baseline = tmp_path / "accuracy.yaml"
    baseline.write_text(
        f"models: {{digits: {{quantized: '{quantized}', data: bad.npz, metric: top1, tolerance: 1}}}}\n"
    )
    before = baseline.read_text()
    words = {
        "profile": ("profile", MODEL, "--data", path, "-o", output),
        "quantize": ("quantize", "--profile", profile, "--data", path, "-o", output),
        "compare": ("compare", quantized, "--data", path, "-o", output),
        "run": ("run", quantized, "--data", path, "-o", output),
        "check": ("check", "--baseline", baseline, "--update", "--junit", output),
    }[command]
    capsys.readouterr()
    assert run(*words) == BAD_FILE
    out, err = capsys.readouterr()
    assert said in err and "bad.npz" in err
    [error] = [line for line in err.splitlines() if line.startswith("qglow: ")]
    assert error.startswith("qglow: error: ") and "Traceback" not in out + err
    assert baseline.read_text() == before and not output.exists()


@pytest.mark.parametrize("command", ["quantize", "compare", "profile", "check"])
def test_recipe_with_an_unknown_key(
    run: Run, capsys: Capture, profile: Path, tmp_path: Path, command: str
) -> None:
    recipe, output = tmp_path / "recipe.yaml", tmp_path / "out"
    recipe.write_text("calibratoin: kl\n")
    baseline = tmp_path / "accuracy.yaml"
    baseline.write_text(
        f"models: {{digits: {{model: '{MODEL}', calibration: '{CALIBRATION}', recipe: recipe.yaml,"
        f" data: '{TEST_DATA}', metric: top1, tolerance: 1}}}}\n"
    )
    words = {
        "quantize": ("quantize", "--profile", profile, "--recipe", recipe, "-o", output),
        "compare": ("compare", MODEL, "--profile", profile, "--recipe", recipe, "--data", TEST_DATA),
        "profile": ("profile", MODEL, "--recipe", recipe, "--data", CALIBRATION, "-o", output),
        "check": ("check", "--baseline", baseline, "--update"),
    }[command]
    capsys.readouterr()
    assert run(*words) == BAD_FILE
    err = capsys.readouterr().err
    assert "calibratoin" in err and "'calibration'" in err and "recipe.yaml" in err
    assert not output.exists() and "measured" not in baseline.read_text()
