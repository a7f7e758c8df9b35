"""The scripts that measure for the README work, on the example, which is always there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from measure_isas import HELD_TO

from qglow.core.errors import InputFileError
from qglow.kernels.isa import host_isas
from tests.zoo import REPOSITORY

SCRIPTS = REPOSITORY / "scripts"


def run(script: str, *options: str, may_fail: str | None = None) -> str:
    """Its output. With `may_fail` it may say so and exit with 1: figures of a few samples are no verdict."""
    command = [sys.executable, str(SCRIPTS / script), "--models", "digits", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    failed_as_it_may = done.returncode == 1 and may_fail is not None and may_fail in done.stderr
    assert done.returncode == 0 or failed_as_it_may, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_accuracy_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.json"
    efforts = ("--efforts", "fast", "balanced")
    options = (*efforts, "--limit", "60", "--json", str(path), "--cache", str(tmp_path))
    table = run("measure_accuracy.py", *options, may_fail=" behind ")
    [row] = json.loads(path.read_text())["models"]
    assert row["samples"] == 60
    fast, balanced = (row["efforts"][name] for name in ("fast", "balanced"))
    assert fast["top1"] > 95.0 and balanced["sqnr_db"] > fast["sqnr_db"] > 25.0
    assert {"minmax", "entropy", "percentile"} <= set(row["others"])
    assert fast["lost"] - fast["won"] == round(0.6 * (row["float_top1"] - fast["top1"]))
    assert f"| digits | 60 | {row['float_top1']:.2f} |" in table
    assert "balanced against ORT minmax over 1 models: lost minus won" in table


@pytest.mark.slow
def test_speed_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    table = run("measure_speed.py", "--alternations", "20", "--json", str(path), may_fail="slower than")
    [row] = json.loads(path.read_text())["models"]
    assert {"qglow int8", "qglow float32", "ORT float32", "ORT int8, own tool"} <= set(row["median_ms"])
    assert row["ratio"]["qglow int8"] == 1.0
    assert table.startswith("| model | qglow int8 |")


@pytest.mark.slow
def test_instruction_sets_are_measured_against_openvino(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    isa = host_isas()[-1].name
    if isa not in HELD_TO:
        pytest.skip(f"nothing holds OpenVINO to {isa}")
    path = tmp_path / "isas.json"
    table = run("measure_isas.py", "--isas", isa, "--alternations", "20", "--json", str(path))
    [row] = json.loads(path.read_text())["isas"]
    assert row["ratio"] == row["median_ms"]["OpenVINO int8"] / row["median_ms"]["qglow int8"]
    assert f"| digits | {isa} | {HELD_TO[isa]} |" in table


@pytest.mark.slow
def test_scaling_is_measured() -> None:
    table = run("measure_scaling.py", "--alternations", "20", "--threads", "2")
    assert table.startswith("| model | batch 1, 1 thread, ms | 1 thread / 2 threads |")
    assert "| digits | 0.0" in table


@pytest.mark.slow
def test_agreement_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "agreement.json"
    run("measure_agreement.py", "--samples", "2", "--json", str(path))
    [row] = json.loads(path.read_text())["models"]
    assert row["int8_elements"] > 10_000 and row["int8_different"] == 0
    assert row["compiled_error"] < 1e-4 and row["node_elements"] > 10_000


def test_unknown_model_is_an_error_that_names_the_known() -> None:
    command = [sys.executable, str(SCRIPTS / "measure_accuracy.py"), "--models", "digit"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "digits" in done.stderr


def test_table_replaces_what_stands_between_its_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from readme_tables import update_readme

    page = tmp_path / "README.md"
    page.write_text("a\n<!-- begin: speed -->\nold\n<!-- end: speed -->\nb\n")
    update_readme("speed", "new\n", page)
    update_readme("speed", "newer", page)
    assert page.read_text() == "a\n<!-- begin: speed -->\nnewer\n<!-- end: speed -->\nb\n"
    with pytest.raises(InputFileError, match="accuracy"):
        update_readme("accuracy", "", page)


@pytest.mark.slow
def test_profiling_is_measured() -> None:
    table = run("measure_profiling.py", "--alternations", "20", may_fail="times as long as")
    assert table.startswith("| model | qglow profiling | qglow float32 | ORT float32 |")
    assert "geometric mean of the ratios" in table


@pytest.mark.slow
def test_single_options_are_measured() -> None:
    table = run("measure_options.py", "--limit", "20")
    titles, _, row, *_ = table.splitlines()
    figures = dict(zip(titles.split(" | ")[1:], row.rstrip(" |").split(" | ")[1:], strict=True))
    assert float(figures["rounding: gptq"]) != float(figures["recipe"]) > 25.0


@pytest.mark.slow
def test_int16_is_measured() -> None:
    table = run("measure_int16.py", "--limit", "20", "--alternations", "20")
    [row] = [line.split(" | ") for line in table.splitlines() if line.startswith("| digits | 20 |")]
    int8, int16 = (float(cell.removesuffix(" dB")) for cell in row[2:4])
    assert int16 > int8 > 25.0
