"""Sizes and settings of a decoder, as the metadata of a GGUF file tells them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from qglow.core.errors import ModelError, UnsupportedError
from qglow.gguf.file import GgufFile
from qglow.gguf.wire import Entry

PAIRED = {"llama": True, "qwen2": False, "qwen3": False}
"""Architectures that are known, and whether elements that turn together lie side by side in a head."""
_MOST = 1 << 20
"""No size of a decoder is larger."""
_REFUSED = ("expert_count", "attention.sliding_window", "logit_scale", "residual_scale", "embedding_scale")
"""Settings that change what a decoder computes, and are not known here."""


@dataclass(frozen=True)
class DecoderSettings:
    """Sizes of a decoder. groups: heads of keys and values. depth: width of a head. paired: as PAIRED has it.

    base: of the angles of the rotary embedding; slower: what positions are divided by.
    """

    architecture: str
    layers: int
    width: int
    inner: int
    heads: int
    groups: int
    depth: int
    epsilon: float
    base: float
    slower: float
    paired: bool


def read_settings(file: GgufFile) -> DecoderSettings:
    """Settings of the model in a file.

    Raises UnsupportedError for architectures and settings that are not known, ModelError for what is missing
    or no number.
    """
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in PAIRED:
        shown = f"'{name}'" if isinstance(name, str) else "none"
        raise UnsupportedError(f"{file.path}: its architecture is {shown}; known are {', '.join(PAIRED)}")
    told = _Told(file, name)
    for key in _REFUSED:
        if told.number(key, 0.0):
            raise UnsupportedError(f"{file.path}: {name}.{key} is {told.number(key, 0.0):g}; it must be 0")
    width, heads = told.size("embedding_length"), told.size("attention.head_count")
    groups = told.size("attention.head_count_kv", heads)
    depth = told.size("attention.key_length", width // heads)
    _check_heads(file, told, (heads, groups, depth))
    return DecoderSettings(
        architecture=name,
        layers=told.size("block_count"),
        width=width,
        inner=told.size("feed_forward_length"),
        heads=heads,
        groups=groups,
        depth=depth,
        epsilon=told.number("attention.layer_norm_rms_epsilon", 1e-5),
        base=told.number("rope.freq_base", 10000.0),
        slower=_slower(file, told),
        paired=PAIRED[name],
    )


def _check_heads(file: GgufFile, told: _Told, sizes: tuple[int, int, int]) -> None:
    """Refuse heads that do not fit together, or whose elements do not all turn."""
    heads, groups, depth = sizes
    if heads % groups or depth % 2 or depth == 0:
        raise ModelError(
            f"{file.path}: {heads} heads of {depth} elements for {groups} of keys do not fit together"
        )
    for key in ("attention.value_length", "rope.dimension_count"):
        if told.size(key, depth) != depth:
            raise UnsupportedError(f"{file.path}: {told.name}.{key} is not {depth}, the width of a head")


def _slower(file: GgufFile, told: _Told) -> float:
    """The number that positions are divided by."""
    kind = told.text("rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise UnsupportedError(
            f"{file.path}: {told.name}.rope.scaling.type is '{kind}'; none and linear are known"
        )
    return told.number("rope.scaling.factor", 1.0) if kind == "linear" else 1.0


class _Told:
    """Entries of metadata whose keys begin with the name of the architecture."""

    def __init__(self, file: GgufFile, name: str) -> None:
        self._metadata: Mapping[str, Entry] = file.metadata
        self._path = file.path
        self.name = name

    def size(self, key: str, default: int | None = None) -> int:
        """An integer from 1 on; an array says it for each layer, all alike."""
        value = self._entry(key, default)
        if isinstance(value, np.ndarray) and value.size and np.all(value == value[0]):
            value = value[0].item()
        return int(self._checked(key, value, lambda v: type(v) is int and 0 < v <= _MOST))

    def number(self, key: str, default: float) -> float:
        """A finite number from 0 on."""
        value = self._entry(key, default)
        fits = self._checked(
            key, value, lambda v: isinstance(v, int | float) and math.isfinite(v) and 0 <= v < 1e30
        )
        return float(fits)

    def text(self, key: str, default: str) -> str:
        """A text."""
        value = self._entry(key, default)
        if not isinstance(value, str):
            raise ModelError(f"{self._path}: {self.name}.{key} is no text; the file is damaged")
        return value

    def _entry(self, key: str, default: Entry | None) -> Entry:
        value = self._metadata.get(f"{self.name}.{key}", default)
        if value is None:
            raise ModelError(f"{self._path}: {self.name}.{key} is missing in its metadata")
        return value

    def _checked(self, key: str, value: Entry, fits: Callable[[Entry], bool]) -> float:
        if not fits(value) or not isinstance(value, int | float):
            raise ModelError(f"{self._path}: {self.name}.{key} is {value!r:.40}; the file is damaged")
        return value
