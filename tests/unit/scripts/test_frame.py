"""The frame of measuring scripts: what is printed, what is written, and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from qglow.core.errors import InputFileError
from scripts.benchmarks import frame
from scripts.benchmarks.frame import Benchmark, Outcome, add_json_option, run


@pytest.fixture
def updated(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Tables that were put into the documentation, by name."""
    found: dict[str, str] = {}
    monkeypatch.setattr(frame, "update_page", found.__setitem__)
    return found


def test_the_page_gets_its_own_form_only_when_asked(updated: dict[str, str]) -> None:
    speed = Benchmark(None, lambda _: Outcome("shown", lambda: "kept"), "speed")
    assert run(speed, []) == 0
    assert updated == {}
    assert run(speed, ["--update-docs"]) == 0
    assert run(Benchmark(None, lambda _: Outcome("shown"), "isas"), ["--update-docs"]) == 0
    assert updated == {"speed": "kept", "isas": "shown"}


def test_a_broken_promise_is_said_and_figures_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "figures.json"
    outcome = Outcome("table", json="{}\n", failures=["digits: slower"])
    benchmark = Benchmark(None, lambda _: outcome, add_options=add_json_option)
    assert run(benchmark, ["--json", str(path)]) == 1
    assert capsys.readouterr() == ("table\n", "digits: slower\n")
    assert path.read_text(encoding="utf-8") == "{}\n"


def test_an_error_is_one_line_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(options: object) -> Outcome:
        raise InputFileError("no such model")

    assert run(Benchmark(None, fail), []) == InputFileError.exit_code
    assert capsys.readouterr() == ("", "error: no such model\n")
