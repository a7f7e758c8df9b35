"""A serialized model without the data of its large initializers, which is most of its bytes.

Protobuf copies data into the message and out of it at every look. What is left out here stays where it
was read, and the rest is parsed as ever.
Wire format: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, TensorProto

_GRAPH = ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_RAW_DATA = TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
"""Bytes."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message: number, wire type, where its tag begins, and its content."""

    number: int
    kind: int
    begin: int
    start: int
    end: int


def without_large_data(model: memoryview, least: int) -> tuple[bytes, dict[int, memoryview]]:
    """A serialized ModelProto whose initializers of at least so many bytes have empty raw data.

    The data of these comes beside it, by position among all initializers, as a part of `model`. What is
    not well-formed is left as it is, for protobuf to refuse.
    """
    large: dict[int, memoryview] = {}
    try:
        parts, count = [], 0
        for field in _fields(model):
            content = model[field.start : field.end]
            if field.number == _GRAPH and field.kind == _BYTES:
                graph, count = _graph(content, least, count, large)
                parts.append(_message(_GRAPH, graph))
            else:
                parts.append(bytes(model[field.begin : field.end]))
        return b"".join(parts), large
    except ValueError:
        return bytes(model), {}


def _graph(graph: memoryview, least: int, count: int, large: dict[int, memoryview]) -> tuple[bytes, int]:
    """The same for a GraphProto, behind `count` initializers; and the number of those at its end."""
    parts: list[bytes | memoryview] = []
    for field in _fields(graph):
        whole, content = graph[field.begin : field.end], graph[field.start : field.end]
        if field.number != _INITIALIZER or field.kind != _BYTES:
            parts.append(whole)
            continue
        data = _raw_data(content) if len(content) >= least else None
        if data is None or data.end - data.start < least:
            parts.append(whole)
        else:
            large[count] = content[data.start : data.end]
            rest = content[: data.begin], _message(_RAW_DATA, b""), content[data.end :]
            parts.append(_message(_INITIALIZER, b"".join(rest)))
        count += 1
    return b"".join(parts), count


def _raw_data(tensor: memoryview) -> _Field | None:
    """The field of a TensorProto's raw data; None if there is none, or more than one."""
    found = [field for field in _fields(tensor) if field.number == _RAW_DATA]
    return found[0] if len(found) == 1 and found[0].kind == _BYTES else None


def _fields(message: memoryview) -> Iterator[_Field]:
    """The fields of a message in order. Raises ValueError if it is not well-formed."""
    position = 0
    while position < len(message):
        tag, start = _varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            end = _varint(message, start)[1]
        elif kind == _BYTES:
            size, start = _varint(message, start)
            end = start + size
        elif kind in (_FIXED32, _FIXED64):
            end = start + (4 if kind == _FIXED32 else 8)
        else:
            raise ValueError(f"wire type {kind}")
        if end > len(message):
            raise ValueError("cut short")
        yield _Field(tag >> 3, kind, position, start, end)
        position = end


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """A number of variable length, and where it ends. Raises ValueError."""
    value = 0
    for index, byte in enumerate(message[position : position + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ValueError("a number without an end")


def _message(number: int, content: bytes) -> bytes:
    """A field with this content."""
    return b"".join((_encoded(number << 3 | _BYTES), _encoded(len(content)), content))


def _encoded(value: int) -> bytes:
    """A number of variable length."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
