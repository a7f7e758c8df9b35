"""Arrays of integers as short text.

Runs of neighbouring bins that hold something, separated by spaces: `3f80:5,7,1*3 4000:2` means
that bin 0x3f80 holds 5, the next 7, the three after it 1 each, and bin 0x4000 holds 2.
"""

from __future__ import annotations

import re

import numpy as np

from qglow.core.types import Array

_ITEM = r"[1-9][0-9]{0,18}(?:\*[1-9][0-9]{0,4})?"
_REPEATED = re.compile(r"(\d+)\*(\d+),?")
_RUN = re.compile(rf"([0-9a-f]{{4}}):({_ITEM}(?:,{_ITEM})*)")
_LARGEST = 2**62
_SURELY_FEW = 2.0**61
"""Up to this sum in float64 there is no need for an exact one."""


def encode_counts(counts: Array) -> str:
    """The text of int64 counts by bin; empty where nothing is counted."""
    filled = np.flatnonzero(counts)
    if not filled.size:
        return ""
    breaks = np.flatnonzero(np.diff(filled) > 1) + 1
    return " ".join(f"{run[0]:04x}:{_items(counts[run])}" for run in np.split(filled, breaks))


def decode_counts(text: str, bins: int) -> Array:
    """int64[bins] from the text. Raises ValueError for text that `encode_counts` would not write."""
    counts = np.zeros(bins, np.int64)
    end = -1
    for part in text.split(" ") if text else []:
        match = _RUN.fullmatch(part)
        if match is None:
            raise ValueError(f"{part[:40]!r} is not a run of counts such as '3f80:5,7*2'")
        start = int(match[1], 16)
        if start <= end:
            raise ValueError(f"the run at bin {match[1]} does not follow the one before it")
        end = _fill(counts, start, match[2])
    if counts.sum(dtype=np.float64) > _SURELY_FEW and sum(counts.tolist()) > _LARGEST:
        raise ValueError("the counts add up to more than any data holds")
    return counts


def _fill(counts: Array, start: int, items: str) -> int:
    """Write one run; returns the bin after it."""
    room = counts.size - start
    values = _repeated(items, room) if "*" in items else list(map(int, items.split(",")))
    if len(values) > room or max(values) > _LARGEST:
        raise ValueError(f"a run of counts goes past bin {counts.size} or 2^62")
    counts[start : start + len(values)] = values
    return start + len(values)


def _repeated(items: str, room: int) -> list[int]:
    """The counts of a run, of which there are too many as soon as there are more than `room`."""
    values: list[int] = []
    end = 0
    for match in _REPEATED.finditer(items):
        if match.start() > end:
            values += map(int, items[end : match.start() - 1].split(","))
        values += [int(match[1])] * int(match[2])
        end = match.end()
        if len(values) > room:
            return values
    return [*values, *map(int, items[end:].split(","))] if end < len(items) else values


def _items(values: Array) -> str:
    breaks = np.flatnonzero(np.diff(values)) + 1
    runs = np.split(values, breaks)
    return ",".join(str(run[0]) if run.size == 1 else f"{run[0]}*{run.size}" for run in runs)
