"""The side of a benchmark: starts a worker and asks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from qglow.core.errors import ModelError
from scripts.benchmarks.models.evaluated import REPOSITORY


class Worker:
    """A module of this checkout that runs `serve` in a process of its own; leaving the context ends it.

    environment: variables besides those of this process.
    """

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def ask(self, do: str, **fields: object) -> Any:
        """What the handler of this name answers. Raises ModelError where it fails or the process ends."""
        assert self._process.stdin is not None and self._process.stdout is not None
        request = json.dumps({"do": do, **fields}, default=_path)
        try:
            print(request, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            line = ""
        else:
            line = self._process.stdout.readline()
        if not line:
            raise ModelError(f"the process that should {do} has ended; standard error says why")
        reply = json.loads(line)
        if "error" in reply:
            raise ModelError(reply["error"])
        return reply["answer"]


def _path(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{value!r} is no JSON")
