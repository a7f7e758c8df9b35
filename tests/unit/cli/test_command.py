"""Commands derive from dataclasses of options: what the function gets, and what is said about mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from qglow.cli.application import new_application
from qglow.cli.command import Command, add_command, gathered
from qglow.cli.failure import guarded
from qglow.cli.flags import flags_of, spoken
from qglow.cli.main import COMMANDS, main
from qglow.core.errors import DataError, UsageError
from qglow.core.options import Bounds, option
from qglow.recipe.keywords import RecipeChoices

Capture = pytest.CaptureFixture[str]


def _doubled(value: object) -> int:
    return 2 * int(str(value))


@dataclass(frozen=True, kw_only=True)
class Source:
    model: Path = option(help="The model", argument=True, metavar="MODEL")
    names: Sequence[str] = option((), "Names", flags=("--name", "-n"), typed=list[str])


@dataclass(frozen=True, kw_only=True)
class Work:
    size: int = option(1, "How much", bounds=Bounds(1, 9), expected="from 1 to 9")
    twice: int = option(4, "Doubled", read=_doubled, typed=str)
    kind: str = option("round", "What kind", choices=("round", "square"))
    deep: bool = option(False, "Deeper")
    wide: bool = option(True, "Wider", negative="--no-wide")


def taken(*words: str) -> list[dict[str, Any]]:
    """What the function of a command gets."""
    calls: list[dict[str, Any]] = []

    def work(source: Source, choices: RecipeChoices, how: Work) -> None:
        """Work."""
        calls.append({"source": source, "choices": choices, "how": how})

    app = new_application()
    add_command(app, "work", Command(work))
    add_command(app, "other", Command(lambda: None))
    command = typer.main.get_command(app)
    flags = flags_of(command.commands["work"])  # type: ignore[attr-defined]
    code = guarded(lambda: command.main(["work", *words], standalone_mode=False), False, flags)
    return calls if code == 0 else [{"code": code}]


def test_values_that_are_not_given_are_the_dataclasses_and_no_choices() -> None:
    assert taken("m") == [{"source": Source(model=Path("m")), "choices": {}, "how": Work()}]


def test_values_are_read_into_dataclasses_and_choices() -> None:
    words = "m -n a --name b --size 3 --twice 5 --kind square --deep --no-wide"
    choices = "--per-tensor --no-equalize --smooth 0.5 --keep-float x --keep-float y --group-size 64"
    (found,) = taken(*words.split(), *choices.split())
    assert found["source"] == Source(model=Path("m"), names=["a", "b"])
    assert found["how"] == Work(size=3, twice=10, kind="square", deep=True, wide=False)
    assert found["choices"] == {
        "per_tensor": True,
        "equalize": False,
        "smooth": "0.5",
        "keep_float": ["x", "y"],
        "group_size": 64,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("m", "--size", "0"), "--size 0: from 1 to 9"),
        (("m", "--kind", "squar"), "--kind 'squar' is not one of round, square; did you mean 'square'?"),
        (("m", "--twice", "x"), "--twice: invalid literal"),
        (("m", "--size", "x"), "'--size'"),
        ((), "'MODEL'"),
    ],
)
def test_mistakes_name_flags(words: tuple[str, ...], said: str, capsys: Capture) -> None:
    assert taken(*words) == [{"code": 2}]
    assert said in capsys.readouterr().err


def float_options() -> list[tuple[str, str]]:
    """Commands with their options that take a number."""
    return [
        (name, item.flags[0])
        for name, command in COMMANDS.items()
        for group in gathered(command.function)
        for item in group.options
        if item.flags and not item.option.only_in_files and "float" in str(group.types[item.name])
        and not item.option.choices and "TIME" not in str(item.option.metavar)
    ]  # fmt: skip


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
@pytest.mark.parametrize(("name", "flag"), float_options())
def test_no_number_of_a_command_is_nan_or_infinite(name: str, flag: str, value: str, capsys: Capture) -> None:
    words = [*name.split(), f"{flag}={value}"]
    for group in gathered(COMMANDS[name].function):
        for item in group.options:
            if not group.is_choices and item.default is MISSING:
                words += [*item.flags[:1], "missing"]
    assert main(words) == 2
    assert flag in capsys.readouterr().err


def test_there_are_numbers_to_test() -> None:
    assert len(float_options()) > 15


def test_errors_of_the_library_speak_of_flags() -> None:
    app = new_application()

    def work(source: Source, choices: RecipeChoices) -> None:
        """Work."""

    add_command(app, "work", Command(work))
    add_command(app, "other", Command(lambda: None))
    flags = flags_of(typer.main.get_command(app).commands["work"])  # type: ignore[attr-defined]
    error = UsageError(
        "group_size 3: `names`, `rounding=gptq`, `equalize=false`, `per_tensor=true`, `model` or `other`",
        field="group_size",
        details=["or `group_size`"],
    )
    assert spoken(error, flags) == (
        "--group-size 3: --name, --rounding gptq, --no-equalize, --per-tensor, MODEL or `other`",
        "or --group-size",
    )
    assert spoken(DataError("group_size is wrong"), flags) == ("group_size is wrong",)
