"""Limits of an entry: latency as a share of onnxruntime's, sizes, and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qglow.core.errors import UsageError
from qglow.core.memory import parse_size
from qglow.recipe.readers import as_count, as_number
from qglow.recipe.sections import FileSection, Placed


@dataclass(frozen=True, slots=True)
class LatencyLimits:
    """Largest latency of the int8 program, relative to onnxruntime's; None for no limit.

    float32: on the float model. int8: on the exported QDQ model, or on the file of a model that was quantized
    already. baseline: how many times the ratio of the baseline it may become.
    """

    float32: float | None = None
    int8: float | None = None
    baseline: float | None = None

    def __bool__(self) -> bool:
        return any(limit is not None for limit in (self.float32, self.int8, self.baseline))


@dataclass(frozen=True, slots=True)
class EntryLimits:
    """Absolute limits of an entry, in bytes, and those of its latency.

    bytes: of all constants. artefact_bytes: of the written program. arena_bytes: of all values at one time.
    """

    latency: LatencyLimits = LatencyLimits()
    bytes: int | None = None
    artefact_bytes: int | None = None
    arena_bytes: int | None = None


def entry_limits(values: Mapping[str, Any]) -> EntryLimits:
    """The limits among the values of an entry by the keys of `LIMIT_KEYS`."""
    latency = values.get("max_latency_ratio")
    return EntryLimits(
        LatencyLimits() if latency is None else latency,
        *(values.get(key) for key in ("max_bytes", "max_artefact_bytes", "max_arena_bytes")),
    )


def _latency(value: object) -> LatencyLimits:
    """A number, which is against float32, or a mapping of numbers."""
    if isinstance(value, dict):
        try:
            found = _LATENCY.build(value, "")
        except Placed as error:
            raise ValueError(str(error)) from error
        assert isinstance(found, LatencyLimits)
        if not found:
            raise ValueError("holds at least one of float32, int8 and baseline")
        return found
    return LatencyLimits(float32=_positive(value))


def _positive(value: object) -> float:
    number = as_number(value)
    if number <= 0.0:
        raise ValueError(f"needs a number above 0, found {number:g}")
    return number


def _growth(value: object) -> float:
    number = _positive(value)
    if number < 1.0:
        raise ValueError(f"needs at least 1, which allows no growth, found {number:g}")
    return number


def _size(value: object) -> int:
    """Bytes, or a size such as "64K"."""
    if not isinstance(value, str):
        return as_count(value)
    try:
        return parse_size(value, "the limit")
    except UsageError as error:
        raise ValueError(str(error)) from error


_LATENCY = FileSection(LatencyLimits, {"float32": _positive, "int8": _positive, "baseline": _growth})
LIMIT_KEYS = {
    "max_latency_ratio": _latency,
    "max_bytes": _size,
    "max_artefact_bytes": _size,
    "max_arena_bytes": _size,
}
"""Readers of the keys of an entry that are limits."""
