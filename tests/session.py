"""A folder that all processes of a test session share."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_FOLDER, _CACHE = "QGLOW_TEST_SESSION", "QGLOW_CACHE"


class SessionFolder:
    """A temporary folder named by an environment variable, with a cache of compiled code for commands."""

    def __init__(self) -> None:
        self._before = os.environ.get(_CACHE)
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="qglow-tests-")
        os.environ[_CACHE] = str(shared("cache"))

    def remove(self) -> None:
        """Delete it; commands have the user's cache again."""
        shutil.rmtree(os.environ.pop(_FOLDER), ignore_errors=True)
        del os.environ[_CACHE]
        if self._before is not None:
            os.environ[_CACHE] = self._before


def shared(name: str) -> Path:
    """A folder of this name, which every process of the session sees."""
    folder = Path(os.environ[_FOLDER], name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
