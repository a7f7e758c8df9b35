"""Object code of several modules, made in processes beside this one while it still writes the rest.

A process (codegen.emission) imports llvmlite alone, runs nothing of the caller's script, and lives as
long as one compilation. Threads would not do: llvmlite lets one at a time into LLVM. The same text
gives the same code in any process, so who compiled what cannot be seen. Where a process cannot be
started or dies, that is logged, and its work is done here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator
from pathlib import Path
from types import TracebackType

import llvmlite

from qglow.codegen import emission
from qglow.codegen.target import object_code, refusal
from qglow.core.errors import CodegenError
from qglow.kernels.isa import Isa

MOST_PROCESSES = 4
"""Writing text takes more than half as long as compiling it [measured], so that a few are kept busy."""
_log = logging.getLogger(__name__)


def compile_modules(texts: Generator[str, None, None], isa: Isa, processes: int) -> list[bytes]:
    """The object files of modules, in their order, in up to so many processes, this one included.

    The last module is compiled here, and others that still wait then. So one module alone starts no
    process, nor does a Python without an interpreter of its own to start. Raises CodegenError, and
    what `texts` raises.
    """
    most = min(processes, MOST_PROCESSES) if _has_interpreter() else 1
    with contextlib.closing(texts), _Crew(isa, most - 1) as crew:
        text = next(texts)
        for following in texts:
            crew.add(text)
            text = following
        own = object_code(text, isa)
        return [*crew.finish(), own]


class _Crew:
    """Processes, one thread for each that speaks with it, and the modules that wait for them."""

    def __init__(self, isa: Isa, most: int) -> None:
        self._isa, self._most = isa, most
        self._texts: list[str] = []
        self._done: dict[int, bytes | CodegenError] = {}
        self._waiting: deque[int] = deque()
        self._changed = threading.Condition()
        self._is_whole = False
        self._is_left = False
        self._idle = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """End all processes, whatever they are at."""
        with self._changed:
            self._is_left = True
            self._changed.notify_all()
        for process in self._processes:
            process.kill()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            # Waits for its end and closes its pipes, one of which may hold what it did not read.
            with contextlib.suppress(BrokenPipeError), process:
                pass

    def add(self, text: str) -> None:
        """One more module, and one more process where all are busy."""
        with self._changed:
            self._waiting.append(len(self._texts))
            self._texts.append(text)
            is_short = self._idle < len(self._waiting)
            self._changed.notify()
        if is_short and len(self._processes) < self._most:
            self._start()

    def finish(self) -> list[bytes]:
        """Compile what waits, and return all object files. Raises CodegenError."""
        with self._changed:
            self._is_whole = True
            self._changed.notify_all()
        self._compile_waiting()
        for thread in self._threads:
            thread.join()
        self._compile_waiting()  # what processes that died have left
        found = [self._done[number] for number in range(len(self._texts))]
        for item in found:
            if isinstance(item, CodegenError):
                raise item
        return [item for item in found if isinstance(item, bytes)]

    def _compile_waiting(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    return
                number = self._waiting.popleft()
            self._done[number] = object_code(self._texts[number], self._isa)

    def _start(self) -> None:
        try:
            process = _start_process(self._isa)
            self._processes.append(process)
            thread = threading.Thread(target=self._serve, args=(process,), daemon=True)
            thread.start()
        except (OSError, RuntimeError) as error:  # no more processes, or no more threads
            self._most = 0
            _log.warning("no further process generates code: one does not start: %s", error)
            return
        self._threads.append(thread)

    def _serve(self, process: subprocess.Popen[bytes]) -> None:
        """Hand modules to a process until there are no more, or until it ends."""
        while (number := self._take()) is not None:
            try:
                self._done[number] = self._ask(process, self._texts[number])
            except (OSError, EOFError, ValueError):
                self._take_back(number)
                process.kill()
                if not self._is_left:
                    _log.warning(
                        "a process that generates code has died (%d): others do its work", process.wait()
                    )
                return

    def _take_back(self, number: int) -> None:
        with self._changed:
            self._waiting.appendleft(number)
            self._changed.notify()

    def _take(self) -> int | None:
        """A module to compile; None where there will be no more."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting or self._is_whole or self._is_left)
            self._idle -= 1
            return self._waiting.popleft() if self._waiting and not self._is_left else None

    def _ask(self, process: subprocess.Popen[bytes], text: str) -> bytes | CodegenError:
        assert process.stdin is not None and process.stdout is not None
        emission.send(process.stdin, emission.GOOD, text.encode())
        kind, data = emission.receive(process.stdout)
        return data if kind == emission.GOOD else refusal(self._isa, data.decode())


def _start_process(isa: Isa) -> subprocess.Popen[bytes]:
    """Raises OSError. It finds llvmlite where this process did, and does not look at other packages.

    It is in a process group of its own, out of reach of Ctrl-C, and ends when nobody asks it any more.
    """
    command = [sys.executable, "-S", "-P", emission.__file__, isa.triple, isa.cpu, isa.features]
    environment = {**os.environ, "PYTHONPATH": str(Path(llvmlite.__file__).parent.parent)}
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(
        command, env=environment, stdin=pipe, stdout=pipe, stderr=nowhere, process_group=0
    )


def _has_interpreter() -> bool:
    """Not in a program that is frozen into one file, or where Python is part of another program."""
    return bool(sys.executable) and not hasattr(sys, "frozen") and Path(emission.__file__).is_file()
