"""Models as files: one, or above what a message of ONNX can hold two, of which one has the weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from qglow.core.errors import UnsupportedError
from qglow.core.files import atomic_writer, write_atomically

LARGEST = (1 << 31) - (1 << 24)
"""Bytes of constants from which on they go to a file of their own: a message holds 2 GB with all else."""
ALIGNMENT = 4096
"""Offsets in that file are multiples of it, so that runtimes can map it."""
KEPT = 1024
"""Constants of fewer bytes stay in the model, where runtimes look for shapes."""
SUFFIX = ".data"
"""End of the name of the file with the constants, behind the model's own name."""


@dataclass(frozen=True)
class FiledModel:
    """An ONNX model as it is written. data: contents of the file beside it, in order; most have none."""

    content: bytes
    data: tuple[bytes, ...] = ()

    def chunks(self) -> Iterator[bytes]:
        """Bytes of the file of constants."""
        for part in self.data:
            yield part
            yield bytes(-len(part) % ALIGNMENT)

    def single(self) -> bytes:
        """The model in one piece. Raises UnsupportedError where it takes two files."""
        if self.data:
            size = sum(map(len, self.data)) / 1e9
            raise UnsupportedError(
                f"the model has {size:.1f} GB of constants as ONNX, more than one file holds; "
                "`export_qdq` and saving a directory write them beside it"
            )
        return self.content

    def write(self, path: Path) -> None:
        """Write the constants, then the model. Raises InputFileError."""
        if self.data:
            with atomic_writer(path.with_name(path.name + SUFFIX)) as stream:
                stream.writelines(self.chunks())
        write_atomically(path, self.content)


def filed(model: onnx.ModelProto, name: str) -> FiledModel:
    """The files of a model, which this changes where it has too many constants for one. name: of its file."""
    tensors = [t for t in model.graph.initializer if len(t.raw_data) >= KEPT]
    if sum(len(tensor.raw_data) for tensor in tensors) <= LARGEST:
        return FiledModel(_serialized(model))
    data, offset = [], 0
    for tensor in tensors:
        content = bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", name + SUFFIX), ("offset", offset), ("length", len(content))):
            tensor.external_data.add(key=key, value=str(value))
        data.append(content)
        offset += len(content) + -len(content) % ALIGNMENT
    return FiledModel(_serialized(model), tuple(data))


def write_model(model: onnx.ModelProto, path: Path | str | None) -> None:
    """Write a model, each file whole or not at all; nothing for None."""
    if path is not None:
        filed(model, Path(path).name).write(Path(path))


def serialized(model: onnx.ModelProto) -> bytes:
    """The content of a model's file: the same bytes for the same model.

    Raises UnsupportedError for a model that is too large for one file.
    """
    return filed(model, "model.onnx").single()


def _serialized(model: onnx.ModelProto) -> bytes:
    content: bytes = model.SerializeToString(deterministic=True)
    return content
