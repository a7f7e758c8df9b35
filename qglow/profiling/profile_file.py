"""The profile file: YAML that people can read, the same bytes for the same content, safe to load.

Values stand under their structural id with the name beside it. Counts are one run-length
string a value (see run_length.py); floats are the shortest decimals that restore them.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from qglow.core.errors import ProfileError
from qglow.core.files import write_atomically
from qglow.core.types import Array, format_float
from qglow.profiling.histogram import ChannelProfile, ValueProfile
from qglow.profiling.profile import Profile
from qglow.profiling.profile_reading import read_profile
from qglow.profiling.run_length import encode_counts

FORMAT = "qglow profile"
VERSION = 1
_DEEPEST = 8
LARGEST_FILE = 2**28
"""Bytes; the profile of a network of a thousand values has about ten million."""


def save(profile: Profile, path: Path) -> None:
    """Write the profile, whole or not at all. The model's path is stored relative to the file's folder.

    Raises InputFileError where the file cannot be written.
    """
    write_atomically(path, to_yaml(profile, path.parent))


def to_yaml(profile: Profile, folder: Path) -> str:
    """The file's text, for a file in `folder`."""
    return "".join(f"{line}\n" for line in _lines(profile, folder))


def load(path: Path) -> Profile:
    """Read a profile. Raises ProfileError, one line, for anything that is not a whole, valid profile."""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise ProfileError(f"{path}: {size} bytes, and a profile has at most {LARGEST_FILE}")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read the profile {path}: {error}") from error
    return parse(text, str(path), path.parent)


def parse(text: str, where: str, folder: Path) -> Profile:
    """The profile in YAML text; a relative model path counts from `folder`. Raises ProfileError."""
    try:
        _check_structure(text)
        document = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ProfileError(f"{where}: not a YAML file: {_one_line(error)}") from error
    except (RecursionError, ValueError, OverflowError) as error:
        raise ProfileError(f"{where}: not a profile: {str(error).splitlines()[0][:80]}") from error
    try:
        return read_profile(document, folder, FORMAT, VERSION)
    except (ValueError, OverflowError) as error:
        raise ProfileError(f"{where}: {error}") from error


class _Loader(yaml.CSafeLoader):
    """libyaml's safe loader; a key may occur once."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} twice", key.start_mark)
            seen.add(key.value if isinstance(key.value, str) else id(key))
        return super().construct_mapping(node, deep)


def _check_structure(text: str) -> None:
    """Refuse aliases, which let a small file stand for a huge one, and nesting beyond what is written."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("aliases are not allowed")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or "cannot be parsed").splitlines()[0]
    return f"{problem}, line {mark.line + 1}" if mark is not None else problem


def _lines(profile: Profile, folder: Path) -> Iterator[str]:
    yield f"format: {quoted(FORMAT)}"
    yield f"version: {VERSION}"
    yield "model:"
    yield f"  path: {quoted(_relative(profile.model.path, folder))}"
    yield f"  sha256: {quoted(profile.model.sha256)}"
    yield f"graph: {quoted(profile.fingerprint)}"
    yield f"samples: {profile.samples}"
    yield f"data_sha256: {quoted(profile.data.hex)}"
    yield f"preprocessing: {_preprocessing(profile)}"
    yield "settings:"
    shapes = (f"{quoted(name)}: {json.dumps(list(shape))}" for name, shape in sorted(profile.shapes.items()))
    yield "  shapes: {" + ", ".join(shapes) + "}"
    yield "values:" if profile.values else "values: {}"
    for key in profile.values:
        value = profile.values[key]
        yield f"  {quoted(key)}:"
        yield f"    name: {quoted(value.name)}"
        yield from (f"    {line}" for line in _statistics(value.statistics))


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
    """On one line, in JSON, which is YAML."""
    if profile.preprocessing is None:
        return "null"
    return json.dumps(dataclasses.asdict(profile.preprocessing))


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


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
