"""What the accuracy table says, and when its script fails; what other tools made is kept."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from qglow import Model
from qglow.core.errors import InputFileError, UsageError
from scripts.benchmarks.frame import read_rows
from scripts.benchmarks.measurements.accuracy import Figures, Row, row_of, times, to_json, to_markdown, totals
from scripts.benchmarks.models.evaluated import EvaluatedModel, chosen_models
from scripts.benchmarks.models.labelled import MODELS
from scripts.benchmarks.rivals.cache import RivalCache, tools
from scripts.benchmarks.rivals.nncf_tool import has_nncf
from scripts.benchmarks.rivals.quantize import rival_model

OURS = Figures(top1=90.0, agreement=98.0, sqnr_db=30.0, lost=5, won=2, seconds=3.0)
WORST = Figures(top1=1.0, agreement=1.0, sqnr_db=1.0, lost=0, won=0, seconds=1.0)
ROW = Row("m", 300, 91.0, {"fast": WORST, "balanced": OURS}, {"minmax": OURS})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"top1": 91.0, "agreement": 99.0, "sqnr_db": 30.5}, []),
        ({"top1": 91.5}, ["top-1 is 1.50 points behind ORT minmax (limit 1)"]),
        (
            {"agreement": 99.25, "sqnr_db": 31.0},
            [
                "agreement is 1.25 points behind ORT minmax (limit 1)",
                "SQNR is 1.00 dB behind ORT minmax (limit 0.5)",
            ],
        ),
    ],
)
def test_a_row_says_in_what_it_is_behind(change: dict[str, float], said: list[str]) -> None:
    better = dataclasses.replace(OURS, **change)  # type: ignore[arg-type]
    row = dataclasses.replace(ROW, others={"entropy": WORST, "minmax": better})
    assert row.behind() == said


def test_nothing_to_compare_with_is_not_behind() -> None:
    assert dataclasses.replace(ROW, others={}).behind() == []


def test_totals_count_the_models_that_both_have() -> None:
    other = dataclasses.replace(OURS, lost=9, won=1, agreement=96.0, sqnr_db=33.0)
    rows = [dataclasses.replace(ROW, others={"minmax": other}), dataclasses.replace(ROW, others={})]
    assert totals(rows)[2:] == [
        "balanced: 6 s in all",
        "balanced against ORT minmax over 1 models: lost minus won 3 against 8, "
        "in the mean +2.00 points of agreement and -3.00 dB of SQNR",
    ]


def test_the_table_has_a_column_for_every_effort_and_tool() -> None:
    first, _, row = to_markdown([ROW]).split("\n")[:3]
    assert first.count("|") == row.count("|") == 6 + len(tools())
    assert "| 91.00 | 1.00 / 1.0 / 1.0 | 90.00 / 98.0 / 30.0 | 90.00 / 98.0 / 30.0 | none |" in row


def test_seconds_of_efforts_stand_beside_those_of_other_tools() -> None:
    slower = dataclasses.replace(OURS, seconds=41.25)
    unknown = dataclasses.replace(OURS, seconds=None)
    rows = [dataclasses.replace(ROW, others={"minmax": slower, "entropy": unknown})]
    titles, _, row = times(rows).split("\n")
    assert titles.startswith("| model | fast, s | balanced, s | ORT minmax, s | ORT entropy, s |")
    assert row.startswith("| m | 1.0 | 3.0 | 41.2 | - |")


def test_efforts_that_a_row_lacks_are_left_open() -> None:
    less = dataclasses.replace(ROW, model="n", efforts={"fast": WORST})
    *_, row, _, _ = to_markdown([ROW, less]).split("\n")
    assert row.startswith("| n | 300 | 91.00 | 1.00 / 1.0 / 1.0 | - | 90.00 / 98.0 / 30.0 |")
    assert totals([ROW, less])[0] == "fast: 2 s in all" and "over 1 models" in totals([ROW, less])[-1]


def test_rows_come_back_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(to_json([ROW]), encoding="utf-8")
    assert read_rows(file, row_of) == {"m": ROW}
    file.write_text(file.read_text(encoding="utf-8").replace("Measured on", "Taken on"), encoding="utf-8")
    with pytest.raises(UsageError, match="other conditions"):
        read_rows(file, row_of)
    for damaged in ("{", "[]", '{"models": [{}], "conditions": ""}'):
        file.write_text(damaged, encoding="utf-8")
        with pytest.raises(InputFileError, match="not figures"):
            read_rows(file, row_of)


@pytest.fixture(scope="module")
def digits() -> tuple[EvaluatedModel, Model]:
    (model,) = chosen_models(["digits"], MODELS)
    return dataclasses.replace(
        model, calibration=dataclasses.replace(model.calibration, samples=2)
    ), model.load()


def test_what_a_tool_made_is_kept_by_data_and_tool(
    digits: tuple[EvaluatedModel, Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        made.append(command[4])
        Path(command[5]).write_bytes(command[4].encode())
        Path(command[5]).with_suffix(".seconds").write_text("1.5\n")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    cache, (model, loaded) = RivalCache(tmp_path / "new", 1.0), digits
    assert cache.seconds(model, loaded, "minmax") is None
    for tool in ("minmax", "entropy", "minmax", "entropy"):
        assert cache.get(model, loaded, tool) == tool.encode()
    assert made == ["minmax", "entropy"] and cache.seconds(model, loaded, "entropy") == 1.5
    fewer = dataclasses.replace(model, calibration=dataclasses.replace(model.calibration, samples=1))
    assert cache.get(fewer, loaded, "minmax") == b"minmax" and made == ["minmax", "entropy", "minmax"]


def test_a_tool_that_failed_is_not_asked_again_but_one_that_was_killed_is(
    digits: tuple[EvaluatedModel, Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = iter([-9, 1])
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, next(codes))
    )
    cache = RivalCache(tmp_path, 1.0)
    assert [cache.get(*digits, "minmax") for _ in range(3)] == [None, None, None]
    assert next(codes, None) is None and [path.suffix for path in tmp_path.iterdir()] == [".failed"]


def test_a_tool_that_takes_too_long_is_stopped(
    digits: tuple[EvaluatedModel, Model], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert RivalCache(tmp_path, 0.01).get(*digits, "minmax") is None
    assert "digits: minmax takes more than 0.01 s" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not has_nncf(), reason="needs NNCF: pip install nncf")
def test_nncf_quantizes_the_example(digits: tuple[EvaluatedModel, Model]) -> None:
    model, loaded = digits
    content = rival_model(model.path, model.calibration.read(model, loaded), "nncf", loaded.shapes)
    assert content is not None and b"QuantizeLinear" in content


def test_a_model_that_no_tool_can_read_gives_none_and_a_line(
    tmp_path: Path, digits: tuple[EvaluatedModel, Model], capfd: pytest.CaptureFixture[str]
) -> None:
    model, loaded = digits
    bad = dataclasses.replace(model, calibration=dataclasses.replace(model.calibration, samples=0))
    assert rival_model(bad.path, [], "minmax", loaded.shapes) is None
    assert "digits.onnx: onnxruntime's tool cannot quantize" in capfd.readouterr().err
