"""Number of threads to run on, and of processes to compile in: as asked for, else the physical cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from qglow.core.errors import UsageError

ENVIRONMENT_VARIABLE = "QGLOW_THREADS"
MOST_THREADS = 1024


def choose_threads(wanted: int | None = None) -> int:
    """`wanted`, else QGLOW_THREADS, else `available_cores()`. Raises UsageError for less than 1."""
    if wanted is not None:
        return _checked(str(wanted), "threads")
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    return _checked(named, ENVIRONMENT_VARIABLE) if named else available_cores()


def choose_processes(threads: int | None = None) -> int:
    """Number of processes that may compile: the threads of this one, but no more than its cores."""
    return min(choose_threads(threads), available_cores())


def _checked(text: str, what: str) -> int:
    try:
        threads = int(text)
    except ValueError:
        threads = 0
    if not 1 <= threads <= MOST_THREADS:
        raise UsageError(f"{what} is '{text}'; give a number from 1 to {MOST_THREADS}")
    return threads


def available_cores(root: Path = Path("/")) -> int:
    """Physical cores that the scheduler and the cgroup's quota leave to this process, at least 1.

    Of a quota only whole processors count: threads that share a part of one would be stopped in
    turns. `root` is where the system's files are.
    """
    if hasattr(os, "sched_getaffinity"):
        processors = os.sched_getaffinity(0)
    else:
        processors = set(range(os.cpu_count() or 1))
    cores = {_siblings(root, processor) for processor in processors}
    quotas = [int(quota) for quota in _quotas(root)]
    return max(1, min([len(cores), *quotas]))


def _siblings(root: Path, processor: int) -> str:
    """Key of a processor's physical core: the list of all processors on it."""
    path = root / f"sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
    return _read(path) or str(processor)


def _quotas(root: Path) -> Iterator[float]:
    """Numbers of processors that the quotas of the process's cgroups, and of those above them, allow."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, place = line.split(":", 2)
        if not controllers:
            yield from _limits(root / "sys/fs/cgroup", place, "cpu.max")
        elif "cpu" in controllers.split(","):
            yield from _limits(root / "sys/fs/cgroup/cpu", place, "cpu.cfs_quota_us", "cpu.cfs_period_us")


def _limits(base: Path, place: str, *names: str) -> Iterator[float]:
    parts = [part for part in place.split("/") if part]
    for depth in range(len(parts) + 1):
        folder = base.joinpath(*parts[:depth])
        words = " ".join(_read(folder / name) for name in names).split()
        if len(words) == 2 and words[0] not in ("max", "-1") and float(words[1]) > 0:
            yield float(words[0]) / float(words[1])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
