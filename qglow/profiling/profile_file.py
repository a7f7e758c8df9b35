"""The profile file: YAML that people can read, the same bytes for the same content, safe to load.

Samples that are kept lie in a second file beside it, whose digest it has (see kept.py). Values stand
under their structural id with the name beside it. Counts are one run-length string a value (see
run_length.py); floats are the shortest decimals that restore them.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

from qglow.core.errors import InputFileError, ProfileError
from qglow.core.files import atomic_writer, sha256_hex, write_atomically
from qglow.core.inputs import check_no_input
from qglow.core.reading import MALFORMED, read_text
from qglow.core.types import Array, format_float
from qglow.profiling.given import written_values
from qglow.profiling.histogram import ChannelProfile, ValueProfile
from qglow.profiling.kept import KeptRecord, pack_kept, read_kept, samples_path
from qglow.profiling.profile import ModelReference, Profile
from qglow.profiling.profile_reading import read_profile
from qglow.profiling.run_length import encode_counts
from qglow.recipe.documents import parse_document

FORMAT = "qglow profile"
VERSION, PLAIN_VERSION = 3, 2
"""Versions that are written: the latter where no input has a value, for older readers."""
READABLE = (1, 2, 3)
"""Versions that are read; the first one keeps no samples, and the first two no values of inputs."""
_DEEPEST = 8
LARGEST_FILE = 2**28
"""Bytes; the profile of a network of a thousand values has about ten million."""


def save(profile: Profile, path: Path) -> None:
    """Write the profile, whole or not at all. The model's path is stored relative to the file's folder.

    A model that was given in memory has no path: it is given again where the profile is used.

    Its samples go beside it, to `samples_path`; where it has none, a file of that name is removed.
    Raises InputFileError if a file cannot be written.
    """
    beside = samples_path(path)
    packed = pack_kept(profile.kept) if profile.kept else None
    text = to_yaml(profile, path.parent, packed)
    if packed is None:
        write_atomically(path, text)
        _remove(beside)
        return
    # Both are renamed at the end, one right after the other.
    with atomic_writer(beside) as samples:
        samples.write(packed)
        samples.flush()
        write_atomically(path, text)


def _remove(path: Path) -> None:
    check_no_input(path)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InputFileError(
            f"cannot remove {path}, samples of an earlier profile: {error.strerror}"
        ) from error


def to_yaml(profile: Profile, folder: Path, packed: bytes | None = None) -> str:
    """The file's text, for a file in `folder`; `packed` is the samples file, if it is at hand."""
    return "".join(f"{line}\n" for line in _lines(profile, folder, packed))


def load(path: Path) -> Profile:
    """Read a profile and the samples that it keeps.

    Where the samples file is missing, it has none, and `kept_note` says so. Raises ProfileError, one
    line, for anything that is not a whole, valid profile, and for samples that have changed.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise ProfileError(f"{path}: {size} bytes, and a profile has at most {LARGEST_FILE}")
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read the profile {path}: {error}") from error
    profile, record = parse(text, str(path), path.parent)
    if not record.count:
        return profile
    beside = samples_path(path)
    try:
        kept = read_kept(beside, record, profile.shapes)
    except FileNotFoundError:
        return dataclasses.replace(profile, kept_note=f"{beside}, samples of {path}, is missing")
    return dataclasses.replace(profile, kept=kept)


def parse(text: str, where: str, folder: Path) -> tuple[Profile, KeptRecord]:
    """The profile in YAML text, and what it says about its samples, which it does not hold.

    A relative model path counts from `folder`. Raises ProfileError.
    """
    try:
        document = parse_document(text, deepest=_DEEPEST, aliases=False)
        return read_profile(document, folder, FORMAT, READABLE)
    except MALFORMED as error:
        raise ProfileError(f"{where}: {error}") from error


def _lines(profile: Profile, folder: Path, packed: bytes | None) -> Iterator[str]:
    yield f"format: {quoted(FORMAT)}"
    yield f"version: {VERSION if profile.model.values else PLAIN_VERSION}"
    yield "model:"
    path = relative_path(profile.model, folder)
    yield f"  path: {'null' if path is None else quoted(path)}"
    yield f"  sha256: {quoted(profile.model.sha256)}"
    yield f"graph: {quoted(profile.fingerprint)}"
    yield f"samples: {profile.samples}"
    yield f"data_sha256: {quoted(profile.data.hex)}"
    yield f"preprocessing: {_preprocessing(profile)}"
    yield from _kept(profile, packed)
    yield "settings:"
    shapes = (f"{quoted(name)}: {json.dumps(list(shape))}" for name, shape in sorted(profile.shapes.items()))
    yield "  shapes: {" + ", ".join(shapes) + "}"
    if profile.model.values:
        yield "  values: " + json.dumps(written_values(profile.model.values))
    yield "values:" if profile.values else "values: {}"
    for key in profile.values:
        value = profile.values[key]
        yield f"  {quoted(key)}:"
        yield f"    name: {quoted(value.name)}"
        yield from (f"    {line}" for line in _statistics(value.statistics))


def _kept(profile: Profile, packed: bytes | None) -> Iterator[str]:
    yield "kept:"
    yield f"  limit: {profile.keep_samples}"
    yield f"  samples: {len(profile.kept)}"
    if profile.kept:
        yield f"  sha256: {quoted(sha256_hex(packed or pack_kept(profile.kept)))}"


def _statistics(value: ValueProfile) -> Iterator[str]:
    yield f"min: {quoted(_number(value.low))}"
    yield f"max: {quoted(_number(value.high))}"
    special = (("zeros", value.zero_count), ("infinities", value.infinity_count), ("nans", value.nan_count))
    yield from (f"{name}: {count}" for name, count in special if count)
    yield f"counts: {quoted(encode_counts(value.counts))}"
    if value.channels is not None:
        yield from _channels(value.channels)


def _channels(channels: ChannelProfile) -> Iterator[str]:
    yield f"channel_axis: {channels.axis}"
    yield f"channel_min: {quoted(_numbers(channels.low))}"
    yield f"channel_max: {quoted(_numbers(channels.high))}"
    yield f"channel_sums: {quoted(' '.join(map(str, channels.totals())))}"


def _preprocessing(profile: Profile) -> str:
    """Text of preprocessing on one line, in JSON, which is YAML."""
    if profile.preprocessing is None:
        return "null"
    return json.dumps(dataclasses.asdict(profile.preprocessing))


def relative_path(model: ModelReference, folder: Path) -> str | None:
    """Path of a model's file as files in `folder` name it; None for a model that was given in memory."""
    if model.path is None:
        return None
    return Path(os.path.relpath(model.path.resolve(), folder.resolve())).as_posix()


def _numbers(values: Array) -> str:
    return " ".join(_number(float(v)) for v in np.asarray(values))


def _number(value: float) -> str:
    return format_float(value)


def quoted(text: str) -> str:
    """A string in double quotes on one line, whatever it holds."""
    if text.isascii() and text.isprintable() and not set(text) & {'"', "\\"}:
        return f'"{text}"'
    written = yaml.dump(text, Dumper=yaml.CSafeDumper, default_style='"', width=2**31 - 1, allow_unicode=True)
    return str(written).rstrip("\n")
