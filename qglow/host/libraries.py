"""Libraries of custom operators for onnxruntime, which the user names: no model or artefact brings one.

A library is loaded into the process and stays there, as any native code does: all sessions that are made
afterwards know its operators.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qglow.core.errors import InputFileError, UsageError

_LONGEST = 200
_loaded: list[str] = []
_lock = threading.Lock()


def use_libraries(paths: str | Path | Sequence[str | Path]) -> None:
    """Load libraries of custom operators for all sessions from now on; one that is loaded stays as it is.

    Raises InputFileError for a missing file, UsageError where onnxruntime is missing or refuses a library.
    """
    for path in [paths] if isinstance(paths, str | Path) else paths:
        where = Path(path).expanduser().absolute()
        if not where.is_file():
            raise InputFileError(f"custom operators: {path}: no such file", field="custom_ops")
        with _lock:
            if str(where) not in _loaded:
                _try(where)
                _loaded.append(str(where))


def loaded_libraries() -> tuple[str, ...]:
    """Paths of the libraries of this process, in the order that they were named in."""
    return tuple(_loaded)


def register_libraries(options: Any) -> None:
    """Give the operators of all libraries to the options of a session."""
    for path in loaded_libraries():
        options.register_custom_ops_library(path)


def _try(path: Path) -> None:
    try:
        import onnxruntime
    except ImportError as error:
        raise UsageError(
            "custom operators run in onnxruntime, which is missing: pip install onnxruntime",
            field="custom_ops",
        ) from error
    try:
        onnxruntime.SessionOptions().register_custom_ops_library(str(path))
    except Exception as error:  # onnxruntime's errors have no common base of their own
        reason = " ".join(str(error).split())[:_LONGEST]
        raise UsageError(
            f"{path} is no library of custom operators for onnxruntime: {reason}", field="custom_ops"
        ) from error
