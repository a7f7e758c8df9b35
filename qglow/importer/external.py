"""Data of tensors in files beside the model: small files are read, large ones mapped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from onnx import TensorProto

from qglow.core.errors import ModelError
from qglow.core.inputs import note_input
from qglow.core.memory import require_more_memory
from qglow.core.reading import MAPPED, map_part, open_regular, size_of


def external_data(
    tensor: TensorProto, folder: Path | None, wanted: int, where: str
) -> tuple[memoryview, str]:
    """The bytes of a tensor, at most `wanted` of them, and the name of the file that has them below `folder`.

    Parts of files of more than MAPPED bytes are mapped: such a file must stay as it is while the data is in
    use. Raises ModelError for data that is missing or outside the folder.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if not location:
        raise ModelError(f"{where} keeps its data in another file but does not say in which")
    if folder is None:
        raise ModelError(
            f"{where} keeps its data in another file, {location[:80]!r}, which is found for weights of a "
            "model that is given by its path: give the path, or what onnx.load reads there"
        )
    path, offset = _inside(folder, location, where), _offset(entries, where)
    note_input(path)
    try:
        return _part(path, offset, wanted, where), path.name
    except OSError as error:
        raise ModelError(f"{where}: cannot read external data {path}: {error.strerror or error}") from error
    except (ValueError, OverflowError) as error:
        raise ModelError(f"{where}: external data at offset {offset}; the file is damaged") from error


def declared_length(tensor: TensorProto, where: str) -> int | None:
    """The bytes that a tensor says it has in another file. Raises ModelError for what is no number."""
    for entry in tensor.external_data:
        if entry.key == "length":
            return _number(entry.value, where)
    return None


def _offset(entries: Mapping[str, str], where: str) -> int:
    offset = _number(entries.get("offset", "0"), where)
    if offset < 0:
        raise ModelError(f"{where}: external data at offset {offset}; the file is damaged")
    return offset


def _number(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ModelError(f"{where}: offset or length of its external data is not a number") from error


def _part(path: Path, offset: int, wanted: int, where: str) -> memoryview:
    """So many bytes of a file from an offset on, or those that are left. Raises OSError and ValueError."""
    with open_regular(path) as stream:
        left = max(0, size_of(stream) - offset)
        if size_of(stream) > MAPPED:
            return map_part(stream, offset, min(wanted, left))
        require_more_memory(min(wanted, left), where)
        stream.seek(offset)
        return memoryview(stream.read(wanted))


def _inside(folder: Path, location: str, where: str) -> Path:
    """The file `location` below `folder`; links are followed before it is judged."""
    root = folder.resolve()
    try:
        path = (root / location).resolve()
        is_file = path.is_file()
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"{where}: {location[:80]!r} is no file name for external data") from error
    if not path.is_relative_to(root):
        raise ModelError(
            f"{where}: its external data {location[:80]!r} lies outside the model's folder; refused"
        )
    if not is_file:
        raise ModelError(f"{where}: its external data {path} is missing; put it beside the model")
    return path
