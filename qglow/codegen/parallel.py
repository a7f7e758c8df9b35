"""Object code of several modules, compiled in other processes while this one still emits the rest.

A process (codegen.emission) imports llvmlite alone, runs nothing of the caller's script, and lives as
long as one compilation. Threads would not help: llvmlite admits one at a time to LLVM. The same text
gives the same code in any process, so results do not depend on who compiled what. If a process cannot be
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
from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType

import llvmlite

from qglow.codegen import emission
from qglow.codegen.functions import Batch
from qglow.codegen.target import object_code, refusal
from qglow.core.errors import CodegenError
from qglow.kernels.emit.target import VectorTarget

MOST_PROCESSES = 4
"""Emitting text takes more than half as long as compiling it [measured], so only a few are kept busy."""
_log = logging.getLogger(__name__)


def compile_modules(
    batches: Generator[Batch, None, None], target: VectorTarget, processes: int
) -> list[bytes]:
    """The object files of modules, in their order, compiled in up to `processes` processes, with this one.

    The last batch is compiled here, with all that still wait by then. So a single batch starts no
    process; nor does a Python that has no interpreter to start. Raises CodegenError, and whatever
    `batches` raises.
    """
    most = min(processes, MOST_PROCESSES) if _has_interpreter() else 1
    with contextlib.closing(batches), _Crew(target, most - 1) as crew:
        batch = next(batches)
        for following in batches:
            crew.add(batch)
            batch = following
        own = [object_code(text, target) for text in batch]
        return [*crew.finish(), *own]


def compile_apart(texts: Sequence[str], target: VectorTarget) -> list[bytes]:
    """The object files of modules, compiled in a process of their own.

    LLVM ends the process where it cannot make code of a module, which may be any for a processor that is not
    the host's. Raises CodegenError, for that too.
    """
    if not _has_interpreter():
        return [object_code(text, target) for text in texts]
    process = _start_process(target)
    try:
        found = _compile_in(process, tuple(texts), target)
    except (OSError, EOFError, ValueError) as error:
        raise refusal(target, "its process ended without a result") from error
    finally:
        process.kill()
        with contextlib.suppress(BrokenPipeError), process:
            pass
    if isinstance(found, CodegenError):
        raise found
    return found


class _Crew:
    """Processes, a thread for each that communicates with it, and the batches that wait for them."""

    def __init__(self, target: VectorTarget, most: int) -> None:
        self._isa, self._most = target, most
        self._batches: list[Batch] = []
        self._done: dict[int, list[bytes] | CodegenError] = {}
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
        """Kill all processes, even while they compile."""
        with self._changed:
            self._is_left = True
            self._changed.notify_all()
        for process in self._processes:
            process.kill()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            # Leaving the context waits for the end and closes the pipes, which may still hold unread data.
            with contextlib.suppress(BrokenPipeError), process:
                pass

    def add(self, batch: Batch) -> None:
        """Add a batch, and start one more process if all are busy."""
        with self._changed:
            self._waiting.append(len(self._batches))
            self._batches.append(batch)
            is_short = self._idle < len(self._waiting)
            self._changed.notify()
        if is_short and len(self._processes) < self._most:
            self._start()

    def finish(self) -> list[bytes]:
        """Compile the waiting batches, and return all object files. Raises CodegenError."""
        with self._changed:
            self._is_whole = True
            self._changed.notify_all()
        self._compile_waiting()
        for thread in self._threads:
            thread.join()
        self._compile_waiting()  # batches of processes that died
        objects: list[bytes] = []
        for number in range(len(self._batches)):
            found = self._done[number]
            if isinstance(found, CodegenError):
                raise found
            objects += found
        return objects

    def _compile_waiting(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    return
                number = self._waiting.popleft()
            self._done[number] = [object_code(text, self._isa) for text in self._batches[number]]

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
        """Hand batches to a process until there are no more, or until it ends."""
        while (number := self._take()) is not None:
            try:
                self._done[number] = _compile_in(process, self._batches[number], self._isa)
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
        """A batch to compile; None if there will be no more."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting or self._is_whole or self._is_left)
            self._idle -= 1
            return self._waiting.popleft() if self._waiting and not self._is_left else None


def _compile_in(
    process: subprocess.Popen[bytes], batch: Batch, target: VectorTarget
) -> list[bytes] | CodegenError:
    """Object files of a batch from a process. Raises OSError, EOFError and ValueError if it has died."""
    assert process.stdin is not None and process.stdout is not None
    objects = []
    for text in batch:
        emission.send(process.stdin, emission.GOOD, text.encode())
        kind, data = emission.receive(process.stdout)
        if kind != emission.GOOD:
            return refusal(target, data.decode())
        objects.append(data)
    return objects


def _start_process(target: VectorTarget) -> subprocess.Popen[bytes]:
    """Start a process that finds llvmlite where this one did, and sees no other packages. Raises OSError.

    It is in a process group of its own, out of reach of Ctrl-C, and ends when its input is closed.
    """
    command = [sys.executable, "-S", "-P", emission.__file__, target.triple, *target.llvm_settings]
    environment = {**os.environ, "PYTHONPATH": str(Path(llvmlite.__file__).parent.parent)}
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(
        command, env=environment, stdin=pipe, stdout=pipe, stderr=nowhere, process_group=0
    )


def _has_interpreter() -> bool:
    """Whether Python can be started: not in a frozen program, or where Python is part of another program."""
    return bool(sys.executable) and not hasattr(sys, "frozen") and Path(emission.__file__).is_file()
