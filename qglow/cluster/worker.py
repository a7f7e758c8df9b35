"""The side of a worker: work that it was sent, and jobs of it."""

from __future__ import annotations

import pickle
import platform
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from distributed import Worker, WorkerPlugin

from qglow.core import errors
from qglow.core.errors import QglowError
from qglow.core.version import __version__

MOST_BEGUN = 4
"""Kinds of work that a worker holds ready; the oldest is begun anew when it is needed again."""

_payloads: dict[str, bytes] = {}
_begun: dict[str, Callable[[Any], Any]] = {}
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Failure:
    """An error that a job raised on purpose, in a form that survives the way back."""

    kind: str
    message: str
    field: str | None
    details: tuple[str, ...]

    @staticmethod
    def of(error: QglowError) -> Failure:
        """Describe an error."""
        return Failure(type(error).__name__, str(error.args[0]), error.field, error.details)

    def error(self) -> QglowError:
        """The error again; of its nearest class that takes a message alone."""
        found = getattr(errors, self.kind, QglowError)
        plain = isinstance(found, type) and found.__init__ is QglowError.__init__  # type: ignore[misc]
        kind: type[QglowError] = found if plain else QglowError
        return kind(self.message, field=self.field, details=self.details)


class WorkPlugin(WorkerPlugin):
    """Gives work, pickled, to every worker, those that join later too."""

    def __init__(self, key: str, payload: bytes) -> None:
        self.key, self.payload = key, payload

    def setup(self, worker: Worker) -> None:
        """Keep the work until it is needed."""
        _payloads[self.key] = self.payload

    def teardown(self, worker: Worker) -> None:
        """Forget the work."""
        _payloads.pop(self.key, None)
        _begun.pop(self.key, None)


def run_job(key: str, item: Any) -> Any:
    """Run one job of the work that has this key; an error of qglow becomes a `Failure`.

    A worker runs one job at a time, whatever number of threads it has: programs own their memory.
    """
    with _one_at_a_time:
        try:
            if key not in _begun:
                while len(_begun) >= MOST_BEGUN:
                    _begun.pop(next(iter(_begun)))
                _begun[key] = pickle.loads(_payloads[key]).begin()
            return _begun[key](item)
        except QglowError as error:
            return Failure.of(error)


def software() -> dict[str, str]:
    """Versions that have to be the same everywhere, by name."""
    found = {name: version(name) for name in ("numpy", "llvmlite", "ml_dtypes")}
    python = ".".join(platform.python_version_tuple()[:2])
    return {"qglow": __version__, "Python": python, **found}
