"""Failure of a command: one line on standard error and an exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import NoReturn

import typer

from qglow.cli.flags import Flag, spoken
from qglow.core.errors import InputFileError, InternalError, MemoryLimitError, QglowError, UsageError
from qglow.core.printable import printable

INTERNAL_ERROR = 70
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
BROKEN_PIPE = 128 + signal.SIGPIPE

_LONGEST, _BEGIN, _END = 1500, 1000, 300
"""Characters of a line of a message: at most, and those that stay of a longer one."""


class Terminated(BaseException):
    """SIGTERM arrived. Not an Exception, so that it unwinds through every clean-up and no further."""


def guarded(run: Callable[[], object], debug: bool, flags: Mapping[str, Flag] | None = None) -> int:
    """Call `run` and return the process's exit code; every error becomes one line and its details.

    `debug` adds the traceback. `flags` are those of the command: messages name fields, which it has as flags.
    """
    try:
        with _termination_unwinds():
            result = run()
            sys.stdout.flush()
    except KeyboardInterrupt:
        result = INTERRUPTED
    except Terminated:
        result = TERMINATED
    except (BrokenPipeError, SystemExit):  # Typer turns the one into the other
        _drop_stdout()
        return BROKEN_PIPE
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _failed(error, flags or {})
    if result in (INTERRUPTED, TERMINATED):
        _tell("qglow: interrupted" if result == INTERRUPTED else "qglow: terminated")
    return result if isinstance(result, int) else 0


def _failed(error: Exception, flags: Mapping[str, Flag]) -> int:
    if isinstance(error, typer.TyperException):
        command = getattr(getattr(error, "ctx", None), "command_path", "qglow")
        _tell(f"qglow: error: {error.format_message().rstrip('.')}; see '{command} --help'")
        return UsageError.exit_code
    if isinstance(error, MemoryError):
        _tell("qglow: error: out of memory; try a smaller --batch-size, or smaller shapes")
        return MemoryLimitError.exit_code
    if isinstance(error, QglowError) and not isinstance(error, InternalError):
        first, *details = spoken(error, flags)
        _tell(f"qglow: error: {first}", *(f"  {line}" for line in details))
        return error.exit_code
    if isinstance(error, OSError) and error.filename is not None:  # a name too long, a folder without rights
        _tell(f"qglow: error: cannot use {str(error.filename)[:200]}: {error.strerror or error}")
        return InputFileError.exit_code
    text = " ".join(str(error).split())
    _tell(
        f"qglow: internal error: {type(error).__name__}: {text or 'no message'}",
        "This is a defect of qglow; rerun with --debug for the traceback.",
    )
    return INTERNAL_ERROR


@contextlib.contextmanager
def _termination_unwinds() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that unfinished files are removed, as SIGINT does."""

    def unwind(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated

    try:
        previous = signal.signal(signal.SIGTERM, unwind)
    except ValueError:  # not the main thread: whoever runs it handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _tell(*lines: str) -> None:
    """Print lines on standard error, each of which stays one, whatever the names in it hold."""
    with contextlib.suppress(OSError):
        for line in lines:
            print(printable(_shortened(line)), file=sys.stderr, flush=True)


def _shortened(line: str) -> str:
    """A line without its middle where a name or a value makes it too long to read."""
    return f"{line[:_BEGIN]} ... {line[-_END:]}" if len(line) > _LONGEST else line


def _drop_stdout() -> None:
    """The reader went away; what is still buffered has nowhere to go, and no error to raise at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
