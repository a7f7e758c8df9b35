"""Arrays of integers as short text.

Runs of neighbouring bins that hold something, separated by spaces: `3f80:5,7,1*3 4000:2` means
that bin 0x3f80 holds 5, the next 7, the three after it 1 each, and bin 0x4000 holds 2.
"""

from __future__ import annotations

import re

import numpy as np

from qglow.core.types import Array

_ITEM = r"[1-9][0-9]{0,18}(?:\*[1-9][0-9]{0,4})?"
_DIGITS = 4
"""Of a bin's number."""
_RUN = re.compile(rf"[0-9a-f]{{{_DIGITS}}}:{_ITEM}(?:,{_ITEM})*")
_PAST = "a run of counts goes past bin {} or 2^62"
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
    if not text:
        return counts
    runs = text.split(" ")
    unfit = next((run for run in runs if _RUN.fullmatch(run) is None), None)
    if unfit is not None:
        raise ValueError(f"{unfit[:40]!r} is not a run of counts such as '3f80:5,7*2'")
    starts = np.array([int(run[:_DIGITS], 16) for run in runs])
    values, repeats = _items_of(",".join([run[_DIGITS + 1 :] for run in runs]))
    firsts = np.cumsum([0, *(run.count(",") + 1 for run in runs[:-1])])
    lengths = np.add.reduceat(repeats, firsts)
    _check_places(starts, lengths, bins)
    if values.max() > _LARGEST:
        raise ValueError(_PAST.format(bins))
    steps = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    counts[np.repeat(starts, lengths) + steps] = np.repeat(values, repeats)
    if counts.sum(dtype=np.float64) > _SURELY_FEW and sum(counts.tolist()) > _LARGEST:
        raise ValueError("the counts add up to more than any data holds")
    return counts


def _items_of(text: str) -> tuple[Array, Array]:
    """int64[items] of `5,7*2`: the counts, and how often each is repeated.

    A count that int64 does not hold becomes the largest that it does.
    """
    if "*" not in text:
        values = _integers(text)
        return values, np.ones_like(values)
    numbers = _integers(text.replace("*", ",-"))  # no count is negative
    are_repeats = numbers < 0
    values, repeated = numbers[~are_repeats], np.cumsum(~are_repeats)[are_repeats] - 1
    repeats = np.ones_like(values)
    repeats[repeated] = -numbers[are_repeats]
    return values, repeats


def _integers(text: str) -> Array:
    return np.fromstring(text, np.int64, sep=",")


def _check_places(starts: Array, lengths: Array, bins: int) -> None:
    """Raise ValueError for runs that touch or overlap, or go past the last bin."""
    ends = starts + lengths
    if np.any(ends > bins):
        raise ValueError(_PAST.format(bins))
    touching = np.flatnonzero(starts[1:] <= ends[:-1])
    if touching.size:
        start = int(starts[touching[0] + 1])
        raise ValueError(f"the run at bin {start:0{_DIGITS}x} does not follow the one before it")


def _items(values: Array) -> str:
    breaks = np.flatnonzero(np.diff(values)) + 1
    runs = np.split(values, breaks)
    return ",".join(str(run[0]) if run.size == 1 else f"{run[0]}*{run.size}" for run in runs)
