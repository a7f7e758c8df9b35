"""The frame of measuring scripts: what is printed, what is written, and the exit code."""

from __future__ import annotations

from pathlib import Path

import measuring
import pytest
from measuring import Outcome, add_json_option, option_parser, run

from qglow.core.errors import InputFileError


@pytest.fixture
def updated(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Tables that were put into the README, by name."""
    found: dict[str, str] = {}
    monkeypatch.setattr(measuring, "update_readme", found.__setitem__)
    return found


def test_the_readme_gets_its_own_form_only_when_asked(updated: dict[str, str]) -> None:
    assert run("speed", option_parser(None), lambda _: Outcome("shown", lambda: "kept"), []) == 0
    assert updated == {}
    assert (
        run("speed", option_parser(None), lambda _: Outcome("shown", lambda: "kept"), ["--update-readme"])
        == 0
    )
    assert run("isas", option_parser(None), lambda _: Outcome("shown"), ["--update-readme"]) == 0
    assert updated == {"speed": "kept", "isas": "shown"}


def test_a_broken_promise_is_said_and_figures_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser, path = option_parser(None), tmp_path / "figures.json"
    add_json_option(parser)
    outcome = Outcome("table", json="{}\n", failures=["digits: slower"])
    assert run("speed", parser, lambda _: outcome, ["--json", str(path)]) == 1
    assert capsys.readouterr() == ("table\n", "digits: slower\n")
    assert path.read_text(encoding="utf-8") == "{}\n"


def test_an_error_is_one_line_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(options: object) -> Outcome:
        raise InputFileError("no such model")

    assert run("speed", option_parser(None), fail, []) == InputFileError.exit_code
    assert capsys.readouterr() == ("", "error: no such model\n")
