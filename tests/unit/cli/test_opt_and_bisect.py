"""qglow opt and qglow bisect on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from qglow.bisection import passes
from qglow.cli.main import main
from tests.unit.bisection.test_bisection_passes import WrongThird
from tests.zoo import REPOSITORY

DIGITS = REPOSITORY / "calib_data" / "digits.onnx"


def run(*words: object) -> int:
    return main([str(word) for word in words])


def test_opt_prints_a_canonical_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("opt", DIGITS) == 0
    out, err = capsys.readouterr()
    assert out.startswith("graph ") and "BatchNormalization" not in out
    assert "rewrites: " in err


def test_opt_without_rewrites_prints_the_model_as_imported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("opt", DIGITS, "--stop-after", 0) == 0
    assert capsys.readouterr().err.strip() == "note: 0 rewrites: none"


def test_opt_dumps_each_pass_and_reads_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps, text = "eliminate-dead-nodes,peephole", tmp_path / "out.txt"
    assert run("opt", DIGITS, "-p", steps, "--dump-each", tmp_path / "steps", "-o", text) == 0
    written = sorted(path.name for path in (tmp_path / "steps").glob("*.txt"))
    assert written == ["00-input.txt", "01-eliminate-dead-nodes.txt", "02-lower.txt", "03-peephole.txt"]
    capsys.readouterr()
    assert run("opt", text, "-p", "dead-stores") == 0
    assert capsys.readouterr().out.startswith("function ")


def test_opt_refuses_a_directory_that_is_not_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run("opt", DIGITS, "--dump-each", tmp_path) == 2
    assert "is not empty" in capsys.readouterr().err


def test_opt_names_the_nearest_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("opt", DIGITS, "-p", "fold-constant") == 2
    assert "did you mean 'fold-constants'" in capsys.readouterr().err


def test_bisect_finds_no_difference_between_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bisect", DIGITS) == 0
    assert "no kernel makes a difference" in capsys.readouterr().out


def test_bisect_finds_no_difference_by_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bisect", DIGITS, "--passes", "") == 0
    assert "no rewrite makes a difference" in capsys.readouterr().out


def test_bisect_finds_a_wrong_rewrite_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "ALL_PASSES", (*passes.ALL_PASSES, WrongThird))
    monkeypatch.setattr(WrongThird, "wrong", "*")
    folder = tmp_path / "minimal"
    assert run("bisect", DIGITS, "-p", "fold-constants,wrong-third", "-o", folder) == 1
    assert "rewrite 1 makes the first difference: wrong-third" in capsys.readouterr().out
    assert {path.name for path in folder.iterdir()} >= {"minimal.txt", "after.txt", "inputs.npz"}
    again = ("bisect", folder / "minimal.txt", "--data", folder / "inputs.npz", "-p", "wrong-third")
    assert run(*again) == 1
    shutil.rmtree(folder)


def test_bisect_of_nodes_needs_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bisect", DIGITS, "--min-sqnr", 20) == 2
    assert "--profile" in capsys.readouterr().err


def test_bisect_of_nodes_says_what_to_give_for_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("bisect", tmp_path, "--min-sqnr", 20, "--data", tmp_path / "x.npz") == 2
    said = "".join(capsys.readouterr().err.split())
    assert f"--profile{tmp_path}/profile.yamland--recipe{tmp_path}/recipe.yaml" in said


@pytest.mark.slow
def test_bisect_says_that_an_int8_model_is_good_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, profile = REPOSITORY / "calib_data" / "calib.npz", tmp_path / "p.yaml"
    assert run("profile", DIGITS, "--data", data, "--samples", 20, "-o", profile) == 0
    given = ("bisect", DIGITS, "--profile", profile, "--data", data)
    assert run(*given, "--min-sqnr", 5) == 0
    assert run(*given, "--min-sqnr", 500) == 1
    assert "is the first to miss 500 dB" in capsys.readouterr().out
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("calibration: mse\n")
    assert run(*given, "--recipe", recipe, "--min-sqnr", 500) == 1
    assert f"--profile {profile} --recipe {recipe}" in " ".join(capsys.readouterr().out.split())
