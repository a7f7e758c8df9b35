"""The memory that a command may take, checked before it is allocated.

QGLOW_MAX_MEMORY gives the limit, such as 2G or 512M. Without it four fifths of what this process could have
are allowed: what is free, or what its control group leaves, and what it holds already.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
from contextlib import suppress
from pathlib import Path

from qglow.core.errors import MemoryLimitError, UsageError

ENVIRONMENT_VARIABLE = "QGLOW_MAX_MEMORY"

_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?)(?:iB|B)?", re.ASCII | re.IGNORECASE)
_SHARE = 0.8
_SMALL = 1 << 20
"""Bytes that are given without a look at what is free."""

_LARGE = 64 << 20
"""Bytes from which on memory of finished work is given back at once, not when Python next collects."""

_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Files of the process's control group, version 2 and version 1: the limit, and what is used."""


def allowed_memory() -> int | None:
    """Bytes that tensors may take together; None where nobody knows what is free.

    Raises UsageError for a QGLOW_MAX_MEMORY that is no size.
    """
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if named:
        return parse_size(named)
    free = [size for size in (_machine_free(), *_groups_free()) if size is not None]
    return int(_SHARE * (min(free) + held_memory())) if free else None


def parse_size(text: str, what: str = ENVIRONMENT_VARIABLE) -> int:
    """Bytes of a size such as 2G, 512M or 1.5GiB; powers of 1024. Raises UsageError that says what it is."""
    match = _SIZE.fullmatch(text.strip())
    size = 0 if match is None else int(float(match[1]) * _FACTORS[match[2].upper()])
    if size <= 0:
        raise UsageError(f"{what}={text[:40]!r} is no size: write 64K, 512M, 2G or a number of bytes")
    return size


def require_memory(needed: int, what: str) -> None:
    """Raise MemoryLimitError where `what` needs more bytes than are allowed."""
    allowed = allowed_memory()
    if allowed is not None and needed > allowed:
        raise MemoryLimitError(
            f"{what} needs about {size_text(needed)} of memory, and {size_text(allowed)} are allowed; "
            f"use smaller shapes or batches, or raise {ENVIRONMENT_VARIABLE}"
        )


def require_more_memory(needed: int, what: str) -> None:
    """Raise MemoryLimitError where `what` needs more bytes than are allowed beside what the process holds."""
    if needed > _SMALL:
        require_memory(held_memory() + needed, what)


def size_text(size: int) -> str:
    """A size in the units of QGLOW_MAX_MEMORY: 1.5G, 300M; 1M and more for what is smaller."""
    for unit in ("T", "G"):
        if size >= _FACTORS[unit]:
            tenths = -(-size * 10 // _FACTORS[unit])
            return f"{tenths // 10}.{tenths % 10}{unit}" if tenths < 10**7 else f"1000000{unit} and more"
    return f"{max(1, -(-size // _FACTORS['M']))}M"


def _machine_free() -> int | None:
    """Bytes that the machine can give without swapping."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def _groups_free() -> list[int]:
    """Bytes that limits of control groups leave."""
    left = []
    for limit, used in _GROUPS:
        with suppress(OSError, ValueError):  # "max", and no such file: no limit
            left.append(max(0, int(Path(limit).read_text()) - int(Path(used).read_text())))
    return left


def release_unused() -> None:
    """Give back memory of what nothing refers to but itself, and what the allocator keeps for later."""
    gc.collect()
    with suppress(AttributeError, OSError):  # a C library of another kind
        ctypes.CDLL(None).malloc_trim(0)


def release_after(size: int) -> None:
    """The same after work on so many bytes, where these are worth the time."""
    if size >= _LARGE:
        release_unused()


def held_memory() -> int:
    """Bytes of memory that this process has for itself now: mapped files, which are on disk, do not count."""
    resident, shared = _resident()
    return resident - shared


def resident_memory() -> int:
    """Bytes of memory that this process has now, those of mapped files included."""
    return _resident()[0]


def _resident() -> tuple[int, int]:
    """Bytes in memory, and those of them that are of files or shared; zeros where nobody tells."""
    with suppress(OSError, ValueError, IndexError):
        counts = Path("/proc/self/statm").read_text().split()
        page = os.sysconf("SC_PAGE_SIZE")
        return int(counts[1]) * page, int(counts[2]) * page
    return 0, 0
