from __future__ import annotations

import pickle
import signal
from collections.abc import Callable
from typing import NoReturn

import pytest
import typer

from qglow.cli.failure import Terminated, guarded
from qglow.core.errors import (
    CodegenError,
    ComparisonFailed,
    DataError,
    InternalError,
    UnsupportedError,
    UsageError,
)

Capture = pytest.CaptureFixture[str]


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def run() -> NoReturn:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ComparisonFailed("m"), 1),
        (UsageError("m"), 2),
        (typer.TyperException("m"), 2),
        (UnsupportedError("m"), 3),
        (DataError("m"), 4),
    ],
    ids=lambda x: type(x).__name__,
)
def test_users_errors_are_one_line_and_a_code(error: Exception, code: int, capsys: Capture) -> None:
    assert guarded(raising(error), debug=False) == code
    out, err = capsys.readouterr()
    assert err.startswith("qglow: error: m") and err.count("\n") == 1 and not out


@pytest.mark.parametrize(
    "error", [InternalError("m"), CodegenError("m"), ValueError("m\nn"), RecursionError()], ids=repr
)
def test_defects_point_to_the_traceback(error: Exception, capsys: Capture) -> None:
    assert guarded(raising(error), debug=False) == 70
    err = capsys.readouterr().err
    assert err.startswith(f"qglow: internal error: {type(error).__name__}: ") and err.count("\n") == 2
    assert "--debug" in err and "Traceback" not in err


def test_debug_gives_the_traceback(capsys: Capture) -> None:
    assert guarded(raising(DataError("m")), debug=True) == 4
    assert "Traceback" in capsys.readouterr().err


def test_exhausted_memory_is_not_called_a_defect(capsys: Capture) -> None:
    assert guarded(raising(MemoryError()), debug=False) == 6
    assert "out of memory" in capsys.readouterr().err


def test_a_long_name_does_not_make_a_long_message(capsys: Capture) -> None:
    error = UsageError(f"begin {'x' * 9000} end", details=["second line"])
    assert guarded(raising(error), debug=False) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("qglow: error: begin xxx") and " ... xxx" in first and first.endswith("x end")
    assert len(first) < 1400 and second == "  second line"


@pytest.mark.parametrize(
    "error",
    [
        DataError("a\nqglow: error: b\x1b[2J.npz: no such file"),
        OSError(36, "File name too long", "a\nb"),
        typer.BadParameter("'a\nb' is no number"),
        ValueError("a\nb"),
    ],
    ids=repr,
)
def test_a_line_break_in_a_name_makes_no_line(error: Exception, capsys: Capture) -> None:
    guarded(raising(error), debug=False)
    first, *more = capsys.readouterr().err.splitlines()
    assert "a" in first and "b" in first
    assert all(line.startswith("This is a defect") for line in more)


def test_details_are_lines_of_their_own() -> None:
    error = DataError("two things:", details=["a", "b"])
    assert str(error) == "two things:\n  a\n  b"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (Terminated(), 143)], ids=["SIGINT", "SIGTERM"]
)
def test_interruption_has_the_shells_code(error: BaseException, code: int, capsys: Capture) -> None:
    assert guarded(raising(error), debug=False) == code
    assert "error" not in capsys.readouterr().err


def test_sigterm_unwinds_and_the_handler_is_restored() -> None:
    before, unwound = signal.getsignal(signal.SIGTERM), []

    def run() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            unwound.append(True)

    assert guarded(run, debug=False) == 143
    assert unwound and signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("result", "code"), [(None, 0), (0, 0), (3, 3), ("text", 0)])
def test_success_is_0_unless_the_command_says_otherwise(result: object, code: int) -> None:
    assert guarded(lambda: result, debug=False) == code
