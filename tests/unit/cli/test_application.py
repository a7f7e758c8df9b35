from __future__ import annotations

import re
import subprocess
import sys

import pytest
import typer

from qglow.cli.main import app, main
from qglow.core.version import __version__

Capture = pytest.CaptureFixture[str]
COMMANDS = (
    "profile",
    "profile merge",
    "profile drift",
    "profile sufficiency",
    "quantize",
    "tune",
    "compare",
    "check",
    "compile",
    "run",
    "generate",
    "bench",
    "inspect",
    "explain",
    "import-gguf",
    "cut",
    "opt",
    "bisect",
    "ops",
    "targets",
    "recipe show",
)


def test_every_command_is_registered_in_the_order_of_the_help(capsys: Capture) -> None:
    assert [command.name for command in app.registered_commands] == list(COMMANDS)
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    places = [out.index(f"\n  {name} ") for name in COMMANDS]
    assert places == sorted(places)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_argument_and_option_has_help(name: str, capsys: Capture) -> None:
    assert main([*name.split(), "--help"]) == 0
    assert f"Usage: qglow {name}" in capsys.readouterr().out
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    assert command.help
    assert [parameter.name for parameter in command.params if not parameter.help] == []


def test_no_words_are_a_question_for_help(capsys: Capture) -> None:
    assert main([]) == 0
    assert "Usage: qglow" in capsys.readouterr().out


def test_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"qglow {__version__}\n"


def test_profile_and_profile_merge_are_two_commands(capsys: Capture) -> None:
    assert main(["profile", "merge"]) == 2
    assert "PROFILE" in capsys.readouterr().err
    assert main(["profile", "no-model.onnx", "--data", "x"]) == 4
    assert "no-model.onnx" in capsys.readouterr().err


@pytest.mark.parametrize("place", [0, 1, 4])
def test_debug_is_valid_anywhere(place: int, capsys: Capture) -> None:
    words = ["profile", "no-model.onnx", "--data", "x"]
    words.insert(place, "--debug")
    assert main(words) == 4
    assert "Traceback" in capsys.readouterr().err


def test_usage_error_says_where_help_is(capsys: Capture) -> None:
    assert main(["quantize", "--profil", "p.yaml"]) == 2
    err = capsys.readouterr().err
    assert "--profile" in err and "see 'qglow quantize --help'" in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_two_screens_with_lines_that_fit(name: str, capsys: Capture) -> None:
    assert main([*name.split(), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 100
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples_that_the_command_takes(name: str, capsys: Capture) -> None:
    assert main([*name.split(), "--help"]) == 0
    _, _, examples = capsys.readouterr().out.partition("\nExample")
    lines = [line.strip() for line in examples.splitlines()[1:]]
    assert lines
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    for line in lines:
        program, *words = line.split()
        assert program == "qglow" and " ".join(words[: len(name.split())]) == name
        command.make_context(name, words[len(name.split()) :])


def test_options_stand_under_headings(capsys: Capture) -> None:
    assert main(["quantize", "--help"]) == 0
    out = capsys.readouterr().out
    for heading, option in {"Ranges and scales": "--schema", "Data": "--labels", "Running": "--isa"}.items():
        section = out[out.index(f"\n{heading}:\n") + 1 :].split("\n\n")[0]
        assert re.search(rf"\n  {option}[ ,]", section)


def test_help_is_read_without_the_compiler() -> None:
    code = (
        "import sys\n"
        "from qglow.cli.main import main\n"
        "assert main(['quantize', '--help']) == 0\n"
        "heavy = ('numpy', 'onnx', 'onnxruntime', 'llvmlite', 'yaml', 'jinja2')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.endswith("\n[]\n")
