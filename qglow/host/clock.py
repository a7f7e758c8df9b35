"""Time that a process spends in nodes of the host, while somebody measures it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class HostClock:
    """Nanoseconds in the host, on all threads, since the clock was started."""

    def __init__(self) -> None:
        self.nanoseconds = 0
        self._lock = threading.Lock()

    def add(self, nanoseconds: int) -> None:
        """Count time that a call has taken."""
        with self._lock:
            self.nanoseconds += nanoseconds


_running: list[HostClock] = []


@contextmanager
def host_clock() -> Iterator[HostClock]:
    """Run a clock in the body, which counts the calls of all threads that end there."""
    clock = HostClock()
    _running.append(clock)
    try:
        yield clock
    finally:
        _running.remove(clock)


@contextmanager
def in_host() -> Iterator[None]:
    """Count the body, a call of nodes with all that leads to them, on the clocks that run."""
    if not _running:
        yield
        return
    start = time.perf_counter_ns()
    try:
        yield
    finally:
        passed = time.perf_counter_ns() - start
        for clock in tuple(_running):
            clock.add(passed)
