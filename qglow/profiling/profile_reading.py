"""Construction of a Profile from the plain data of a profile file, believing nothing in it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qglow.core.types import Array, Shape
from qglow.numerics.histogram import BIN_COUNT
from qglow.profiling.given import read_values
from qglow.profiling.histogram import ChannelProfile, ValueProfile
from qglow.profiling.kept import KeptRecord
from qglow.profiling.profile import ModelReference, Profile, ProfiledValue
from qglow.profiling.run_length import decode_counts
from qglow.profiling.samples import DataDigest
from qglow.recipe.data import MOST_KEPT, Preprocessing

_HEX = re.compile(r"[0-9a-f]{8,64}")
_TOTAL = re.compile(r"-?[0-9]{1,32}")
_MOST_CHANNELS = 2**20
_LARGEST_TOTAL = 2**103
_TOP = {
    "format", "version", "model", "graph", "samples", "data_sha256", "preprocessing", "kept", "settings",
    "values",
}  # fmt: skip
_KEPT = {"limit", "samples", "sha256"}
_VALUE = {
    "name", "min", "max", "zeros", "infinities", "nans", "counts",
    "channel_axis", "channel_min", "channel_max", "channel_sums",
}  # fmt: skip


def read_profile(
    document: object, folder: Path, form: str, versions: tuple[int, ...]
) -> tuple[Profile, KeptRecord]:
    """The profile that a parsed file stands for, without its samples, and what it says about these.

    Version 1 keeps no samples, and versions 1 and 2 no values of inputs. Raises ValueError that says where
    it is wrong.
    """
    top = _mapping(document, "a profile")
    if top.get("format") != form:
        raise ValueError(f"not a profile: 'format' is not {form!r}")
    version = top.get("version")
    if type(version) is not int or version not in versions:
        readable = " and ".join(map(str, versions))
        raise ValueError(f"format version {str(version)[:20]}, this qglow reads {readable}")
    _check_keys(top, _TOP if version > 1 else _TOP - {"kept"}, "")
    limit, record = _kept(_get(top, "kept")) if version > 1 else (0, KeptRecord())
    model = _mapping(_get(top, "model"), "model")
    settings = _mapping(_get(top, "settings"), "settings")
    values = read_values(_mapping(settings.get("values", {}), "settings.values")) if version > 2 else {}
    profile = Profile(
        ModelReference(_path(model, folder), _digest(model, "sha256"), values),
        _digest(top, "graph"),
        _samples(top),
        DataDigest.parse(_digest(top, "data_sha256")),
        {name: _shape(shape) for name, shape in _mapping(_get(settings, "shapes"), "shapes").items()},
        _preprocessing(_get(top, "preprocessing")),
        {key: _value(key, entry) for key, entry in _mapping(_get(top, "values"), "values").items()},
        keep_samples=limit,
    )
    return profile, record


def _path(model: Mapping[str, Any], folder: Path) -> Path | None:
    """Return the path of the model's file; null stands for a model that was given in memory."""
    return None if _get(model, "path") is None else folder / _text(model, "path")


def _kept(entry: object) -> tuple[int, KeptRecord]:
    """Number of samples that may be kept, and facts of the samples file."""
    fields = _mapping(entry, "kept")
    _check_keys(fields, _KEPT, "kept: ")
    limit, count = _count(fields, "limit"), _count(fields, "samples")
    if not count <= limit <= MOST_KEPT:
        raise ValueError(f"kept: {count} samples of {limit}, and at most {MOST_KEPT} are kept")
    return limit, KeptRecord(count, _digest(fields, "sha256") if count else "")


def _value(key: str, entry: object) -> ProfiledValue:
    if not _HEX.fullmatch(key):
        raise ValueError(f"values: {key[:40]!r} is not a structural id")
    fields = _mapping(entry, f"value {key}")
    name = _text(fields, "name")
    try:
        _check_keys(fields, _VALUE, "")
        return ProfiledValue(name, _statistics(fields))
    except ValueError as error:
        raise ValueError(f"value {name[:60]!r}: {error}") from error


def _statistics(fields: Mapping[str, Any]) -> ValueProfile:
    counts = decode_counts(_text(fields, "counts"), BIN_COUNT)
    low, high = _floats(_text(fields, "min")), _floats(_text(fields, "max"))
    if low.size != 1 or high.size != 1:
        raise ValueError("min and max are not a range")
    value = ValueProfile(counts, float(low[0]), float(high[0]), _channels(fields))
    if value.low > value.high and value.total > value.nan_count:
        raise ValueError("min and max are not a range")
    for name, found in (
        ("zeros", value.zero_count), ("infinities", value.infinity_count), ("nans", value.nan_count),
    ):  # fmt: skip
        if fields.get(name, 0) != found:
            raise ValueError(f"{name!r} is not what the counts say")
    return value


def _channels(fields: Mapping[str, Any]) -> ChannelProfile | None:
    if "channel_axis" not in fields:
        return None
    low, high = _floats(_text(fields, "channel_min")), _floats(_text(fields, "channel_max"))
    sums = _text(fields, "channel_sums").split()
    if not low.size == high.size == len(sums) or low.size > _MOST_CHANNELS:
        raise ValueError("channel_min, channel_max and channel_sums have different lengths")
    if not all(map(_TOTAL.fullmatch, sums)):
        raise ValueError("channel_sums are whole numbers")
    totals = list(map(int, sums))
    if max(map(abs, totals), default=0) > _LARGEST_TOTAL:
        raise ValueError("channel_sums hold more than any data gives")
    return ChannelProfile.from_totals(_count(fields, "channel_axis"), low, high, totals)


def _floats(text: str) -> Array:
    """float32 values; NaN is none."""
    try:
        with np.errstate(over="ignore"):
            values = np.array(list(map(float, text.split(" "))), np.float64).astype(np.float32)
    except ValueError:
        values = np.array([math.nan], np.float32)
    if np.isnan(values).any():
        raise ValueError(f"{text[:40]!r} is not numbers")
    return np.asarray(values)


def _preprocessing(entry: object) -> Preprocessing | None:
    if entry is None:
        return None
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in _mapping(entry, "preprocessing").items()
    }
    try:
        return Preprocessing(**fields)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"preprocessing: {error}") from error


def _shape(entry: object) -> Shape:
    if not isinstance(entry, list) or not all(type(d) is int and 0 <= d < 2**40 for d in entry):
        raise ValueError("settings.shapes holds a list of sizes for every input")
    return tuple(entry)


def _mapping(entry: object, what: str) -> Mapping[str, Any]:
    if not isinstance(entry, dict) or not all(isinstance(key, str) for key in entry):
        raise ValueError(f"{what} is not a mapping with names as keys")
    return entry


def _get(fields: Mapping[str, Any], key: str) -> object:
    if key not in fields:
        raise ValueError(f"{key!r} is missing")
    return fields[key]


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = _get(fields, key)
    if not isinstance(value, str):
        raise ValueError(f"{key!r} is not text in quotes")
    if key == "path" and "\0" in value:
        raise ValueError("'path' holds NUL, which no file name has")
    return value


def _digest(fields: Mapping[str, Any], key: str) -> str:
    value = _text(fields, key)
    if not _HEX.fullmatch(value):
        raise ValueError(f"{key!r} is not a digest of hexadecimal digits")
    return value


def _count(fields: Mapping[str, Any], key: str) -> int:
    value = _get(fields, key)
    if type(value) is not int or not 0 <= value < 2**48:
        raise ValueError(f"{key!r} is not a count")
    return value


def _samples(top: Mapping[str, Any]) -> int:
    count = _count(top, "samples")
    if count == 0:
        raise ValueError("it is of 0 samples, which say nothing; profile the model over data")
    return count


def _check_keys(fields: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in fields:
        if key not in known:
            raise ValueError(f"{where}unknown key {key[:40]!r}")
