"""A folder that all processes of a test session share."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_FOLDER, _CACHE, _REMEMBER = "QGLOW_TEST_SESSION", "QGLOW_CACHE", "QGLOW_REMEMBER"
_NO_BYTECODE, _BYTECODE = "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"


class SessionFolder:
    """A temporary folder named by an environment variable, with a cache of compiled code for commands.

    Answers that samples gave are not kept: tests change what computes them. Bytecode is kept there too:
    otherwise every command compiles all of the sources anew where Python is told to write none beside them.
    """

    def __init__(self) -> None:
        changed = _CACHE, _REMEMBER, _NO_BYTECODE, _BYTECODE
        self._before = {name: os.environ.get(name) for name in changed}
        os.environ[_REMEMBER] = "0"
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="qglow-tests-")
        os.environ[_CACHE] = str(shared("cache"))
        os.environ.pop(_NO_BYTECODE, None)
        os.environ[_BYTECODE] = str(shared("bytecode"))

    def remove(self) -> None:
        """Delete it; commands have the user's cache again."""
        shutil.rmtree(os.environ.pop(_FOLDER), ignore_errors=True)
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def shared(name: str) -> Path:
    """A folder of this name, which every process of the session sees."""
    folder = Path(os.environ[_FOLDER], name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
