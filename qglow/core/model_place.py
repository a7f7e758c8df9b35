"""Places that an ONNX model is read from: a file, or bytes in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qglow.core.memory import require_more_memory
from qglow.core.reading import read_or_map

IN_MEMORY = "model in memory"
"""Name of a model without a file, in messages and reports."""


@dataclass(frozen=True, repr=False)
class ModelBytes:
    """A serialized ONNX model in memory, in place of a file. There are no files beside it."""

    content: bytes

    def __repr__(self) -> str:
        return f"ModelBytes({len(self.content)} bytes)"

    def __str__(self) -> str:
        return f"the {IN_MEMORY}"


ModelPlace = Path | ModelBytes


def read_place(place: ModelPlace) -> memoryview:
    """The serialized model, mapped where the file is large.

    Raises OSError, and MemoryLimitError for a file whose content would not fit.
    """
    if isinstance(place, ModelBytes):
        return memoryview(place.content)
    require_more_memory(place.stat().st_size, str(place))
    return read_or_map(place)


def folder_of(place: ModelPlace) -> Path | None:
    """The folder of files beside the model, None where there are none."""
    return None if isinstance(place, ModelBytes) else place.parent


def stem_of(place: ModelPlace) -> str:
    """Name for what is made of the model."""
    return "model" if isinstance(place, ModelBytes) else place.stem


def file_or_bytes(place: ModelPlace) -> Path | bytes:
    """The model as other runtimes take it."""
    return place.content if isinstance(place, ModelBytes) else place
