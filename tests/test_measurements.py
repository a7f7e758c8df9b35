"""The benchmarks work, on the example, which is always there."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qglow.core.errors import DataError, InputFileError
from scripts.benchmarks.default_rows import Figures, Row, failures, row_of, summary, to_json
from scripts.benchmarks.frame import read_rows
from scripts.benchmarks.measurements.isas import HELD_TO
from scripts.benchmarks.measurements.repairs import Row as Cost
from scripts.benchmarks.models.wild import wild_samples
from scripts.benchmarks.tables import update_page
from tests.runtimes import NATIVE
from tests.zoo import REPOSITORY

BENCHMARKS = [sys.executable, "-m", "scripts.benchmarks"]


def run(name: str, *options: str, may_fail: str | None = None) -> str:
    """Its output. With `may_fail` it may say so and exit with 1: figures of a few samples are no verdict."""
    command = [*BENCHMARKS, name, "--models", "digits", *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    failed_as_it_may = done.returncode == 1 and may_fail is not None and may_fail in done.stderr
    assert done.returncode == 0 or failed_as_it_may, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_accuracy_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.json"
    efforts = ("--efforts", "fast", "balanced")
    options = (*efforts, "--limit", "60", "--json", str(path), "--cache", str(tmp_path))
    table = run("accuracy", *options, may_fail=" behind ")
    [row] = json.loads(path.read_text())["models"]
    assert row["samples"] == 60
    fast, balanced = (row["efforts"][name] for name in ("fast", "balanced"))
    assert fast["top1"] > 95.0 and balanced["sqnr_db"] > fast["sqnr_db"] > 25.0
    assert {"minmax", "entropy", "percentile"} <= set(row["others"])
    assert fast["lost"] - fast["won"] == round(0.6 * (row["float_top1"] - fast["top1"]))
    assert f"| digits | 60 | {row['float_top1']:.2f} |" in table
    assert "balanced against ORT minmax over 1 models: lost minus won" in table


@pytest.mark.slow
def test_the_cost_of_repair_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "repairs.json"
    options = ("--repeat", "1", "--alternations", "5", "--calibration", "8", "--json", str(path))
    table = run("repairs", *options, may_fail=" times as long ")
    [row] = json.loads(path.read_text())["models"]
    assert min(row["seconds"].values()) > 0.5 and row["int8"] == {"plain": 1.0, "repaired": 1.0}
    assert row["verdicts"]["repaired"] == "good" and 0.5 < row["call"] < 2.0
    assert "| 100.0 | 100.0 |" in table and "1 models, " in table
    again = run("repairs", *options, "--resume", may_fail=" times as long ")
    assert again == table


def cost(**changes: object) -> Cost:
    plain = Cost(
        "net",
        {"plain": 2.0, "repaired": 5.0},
        {"plain": 0.8, "repaired": 0.76},
        {"plain": "suspicious", "repaired": "good"},
        1.1,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"seconds": {"plain": 2.0, "repaired": 6.2}}, ["quantizing takes 3.10 times as long with repair"]),
        ({"int8": {"plain": 0.8, "repaired": 0.7}}, ["repair keeps 87.5% of the int8 multiply-adds"]),
        ({"call": 1.2}, ["a call takes 1.20 times as long after repair"]),
        ({"int8": {"plain": None, "repaired": None}}, []),
        ({"call": 1.2, "verdicts": {"plain": "broken", "repaired": "good"}}, []),
    ],
)
def test_repair_is_held_to_limits_unless_the_model_is_broken_without(
    changes: dict[str, object], said: list[str]
) -> None:
    assert cost(**changes).failures == [f"net: {line}" for line in said]


@pytest.mark.slow
def test_the_gallery_is_measured_and_only_the_whole_of_it_is_shown() -> None:
    table = run("gallery", "--alternations", "20", "--limit", "60")
    assert "| digits | top-1, 60 samples | " in table and "82.73 kB | 22.54 kB |" in table
    page = (REPOSITORY / "docs" / "index.md").read_text()
    for options, code in ((("--limit", "60"), 2), (("--alternations", "20"), 2)):
        command = [*BENCHMARKS, "gallery", "--models", "digits", "--update-docs", *options]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == code and "error: the front page shows" in done.stderr
    assert (REPOSITORY / "docs" / "index.md").read_text() == page


@pytest.mark.slow
def test_speed_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    table = run("speed", "--alternations", "20", "--json", str(path), may_fail="slower than")
    [row] = json.loads(path.read_text())["models"]
    assert {"qglow int8", "qglow float32", "ORT float32", "ORT int8, own tool"} <= set(row["median_ms"])
    assert row["ratio"]["qglow int8"] == 1.0
    assert table.startswith("| model | qglow int8 |")


@pytest.mark.slow
def test_instruction_sets_are_measured_against_openvino(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    isa = NATIVE[-1].name
    if isa not in HELD_TO:
        pytest.skip(f"nothing holds OpenVINO to {isa}")
    path = tmp_path / "isas.json"
    table = run("isas", "--isas", isa, "--alternations", "20", "--json", str(path))
    [row] = json.loads(path.read_text())["isas"]
    assert row["ratio"] == row["median_ms"]["OpenVINO int8"] / row["median_ms"]["qglow int8"]
    assert f"| digits | {isa} | {HELD_TO[isa]} |" in table


@pytest.mark.slow
def test_scaling_is_measured() -> None:
    table = run("scaling", "--alternations", "20", "--threads", "2")
    assert table.startswith("| model | batch 1, 1 thread, ms | 1 thread / 2 threads |")
    assert "| digits | 0.0" in table


@pytest.mark.slow
def test_agreement_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "agreement.json"
    run("agreement", "--samples", "2", "--json", str(path))
    [row] = json.loads(path.read_text())["models"]
    assert row["int8_elements"] > 10_000 and row["int8_different"] == 0
    assert row["compiled_error"] < 1e-4 and row["node_elements"] > 10_000


def test_unknown_model_is_an_error_that_names_the_known() -> None:
    command = [*BENCHMARKS, "accuracy", "--models", "digit"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "digits" in done.stderr


def test_table_replaces_what_stands_between_its_comments(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("a\n<!-- begin: speed -->\nold\n<!-- end: speed -->\nb\n")
    update_page("speed", "new\n", page)
    update_page("speed", "newer", page)
    assert page.read_text() == "a\n<!-- begin: speed -->\nnewer\n<!-- end: speed -->\nb\n"
    with pytest.raises(InputFileError, match="accuracy"):
        update_page("accuracy", "", page)


@pytest.mark.slow
def test_profiling_is_measured() -> None:
    table = run("profiling", "--alternations", "20", may_fail="times as long as")
    assert table.startswith("| model | qglow profiling | qglow float32 | ORT float32 |")
    assert "geometric mean of the ratios" in table


@pytest.mark.slow
def test_single_options_are_measured() -> None:
    table = run("options", "--limit", "20")
    titles, _, row, *_ = table.splitlines()
    figures = dict(zip(titles.split(" | ")[1:], row.rstrip(" |").split(" | ")[1:], strict=True))
    assert float(figures["rounding: gptq"]) != float(figures["recipe"]) > 25.0


@pytest.mark.slow
def test_int16_is_measured() -> None:
    table = run("int16", "--limit", "20", "--alternations", "20")
    [row] = [line.split(" | ") for line in table.splitlines() if line.startswith("| digits | 20 |")]
    int8, int16 = (float(cell.removesuffix(" dB")) for cell in row[2:4])
    assert int16 > int8 > 25.0


@pytest.mark.slow
def test_a_checkout_has_the_bits_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "revisions.json"
    options = ("--base", str(REPOSITORY), "--alternations", "20", "--json", str(path))
    table = run("compare-revisions", *options)
    [row] = json.loads(path.read_text())["models"]
    assert row["different"] == [] and row["errors"] == {} and row["ratio"] > 0
    assert "| digits | same |" in table


@pytest.mark.slow
def test_defaults_are_measured_beside_plain_methods_and_other_tools(tmp_path: Path) -> None:
    path = tmp_path / "defaults.json"
    options = ("--limit", "40", "--tools", "minmax", "--json", str(path), "--cache", str(tmp_path))
    table = run("defaults", *options, may_fail=" below ")
    [row] = json.loads(path.read_text())["models"]
    assert (row["calibrated"], row["samples"]) == (64, 40) and row["judged"] == "evaluation split"
    assert set(row["plain"]) == {"minmax", "percentile:99.99", "mse", "kl"}
    assert set(row["others"]) == {"ORT minmax"}
    assert row["default"]["sqnr_db"] > 25.0 and row["default"]["agreement"] > 95.0
    assert row["plain"]["minmax"]["sqnr_db"] != row["others"]["ORT minmax"]["sqnr_db"]
    assert "1 models, " in table
    again = run("defaults", *options, "--again", may_fail=" below ")
    assert json.loads(path.read_text())["models"][0]["plain"] == row["plain"]
    assert again.splitlines()[2].startswith("| digits | evaluation split | 64 / 40 |")


def row_of_defaults(default: float, plain: float, other: float, verdict: str | None = None) -> Row:
    figures = [Figures(value, None) for value in (default, plain, other)]
    return Row("m", "its own samples", 2, 2, figures[0], {"mse": figures[1]}, {"NNCF": figures[2]}, verdict)


def test_defaults_are_held_to_the_best_plain_method(tmp_path: Path) -> None:
    rows = [row_of_defaults(30.0, 30.4, 20.0), row_of_defaults(10.0, 30.0, 35.0)]
    assert failures(rows) == [
        "m: 20.00 dB below mse (limit 0.5)",
        "the best other tool is 7.50 dB ahead in the mean",
    ]
    assert summary(rows) == (
        "2 models, 1 more than 0.5 dB below their best plain method, in the mean -10.20 dB over it, "
        "-7.50 dB over the best other tool of each, ahead on 1"
    )
    path = tmp_path / "defaults.json"
    path.write_text(to_json(rows[:1]))
    assert read_rows(path, row_of) == {"m": rows[0]}


def test_a_broken_model_that_calls_itself_good_is_a_failure() -> None:
    rows = [row_of_defaults(5.9, 5.0, 4.0, word) for word in ("good", "suspicious", "broken")]
    assert failures(rows) == ["m: called good at 5.9 dB"]


def test_defaults_of_a_program_that_differs_nowhere_count_as_a_hundred_decibels() -> None:
    row = row_of_defaults(np.inf, 40.0, np.inf)
    assert (row.gain, row.lead) == (60.0, 0.0)


def test_bytes_of_wild_inputs_become_floats_as_their_keys_say(tmp_path: Path) -> None:
    pixels = np.full((1, 3, 1, 1), 255, np.uint8)
    arrays = {"0|a|u8": pixels, "0|b|u8s": pixels, "0|c|u8n": pixels, "0|d": np.arange(3)}
    path = tmp_path / "m.inputs.npz"
    np.savez(path, **{**arrays, **{f"1{key[1:]}": array for key, array in arrays.items()}})
    samples = wild_samples(path)
    assert len(samples) == 2
    assert samples[1]["a"].dtype == np.float32 and samples[1]["a"].ravel().tolist() == [1.0, 1.0, 1.0]
    assert samples[1]["b"].ravel().tolist() == [1.0, 1.0, 1.0]
    normalized = [(1.0 - mean) / std for mean, std in ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))]
    np.testing.assert_allclose(samples[0]["c"].ravel(), normalized, rtol=1e-6)
    assert samples[0]["d"].tolist() == [0, 1, 2]


def test_wild_inputs_that_lack_something_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.inputs.npz"
    for keys in (("0|a", "1|b"), ("0|a|u9",), ("a",)):
        np.savez(path, **{key: np.zeros((1, 3, 1, 1)) for key in keys})
        with pytest.raises(DataError, match="m.inputs.npz"):
            wild_samples(path)
