"""ONNX tensors as numpy arrays, with nothing in the file taken on trust."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError
from onnx import TensorProto, numpy_helper

from qglow.core.errors import DataError, ModelError, UnsupportedError
from qglow.core.reading import read_bytes
from qglow.core.types import QUANTIZED_BITS, Array, ElementType
from qglow.importer.external import declared_length, external_data

ELEMENTS: dict[int, ElementType] = {
    TensorProto.FLOAT: ElementType.FLOAT,
    TensorProto.DOUBLE: ElementType.DOUBLE,
    TensorProto.INT8: ElementType.INT8,
    TensorProto.INT16: ElementType.INT16,
    TensorProto.INT32: ElementType.INT32,
    TensorProto.INT64: ElementType.INT64,
    TensorProto.UINT8: ElementType.UINT8,
    TensorProto.UINT16: ElementType.UINT16,
    TensorProto.UINT32: ElementType.UINT32,
    TensorProto.UINT64: ElementType.UINT64,
    TensorProto.BOOL: ElementType.BOOL,
}


HALVES: dict[int, ElementType] = {
    TensorProto.FLOAT16: ElementType.FLOAT16,
    TensorProto.BFLOAT16: ElementType.BFLOAT16,
}
"""Types that only Cast knows: nothing else computes in them."""
BORDER = HALVES | {TensorProto.DOUBLE: ElementType.DOUBLE}
"""Reals of inputs and outputs that are computed with as float32."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Form in which a model stores integers that stand for reals; in the graph they are signed.

    element: their type in the graph. unsigned: the model has the unsigned type of that width.
    """

    element: ElementType
    unsigned: bool

    @property
    def shift(self) -> int:
        """The graph's integer for the model's 0."""
        return -(1 << (QUANTIZED_BITS[self.element] - 1)) if self.unsigned else 0

    def __str__(self) -> str:
        return f"{'u' if self.unsigned else ''}int{QUANTIZED_BITS[self.element]}"


QUANTIZED: dict[int, Stored] = {
    TensorProto.INT8: Stored(ElementType.INT8, False),
    TensorProto.UINT8: Stored(ElementType.INT8, True),
    TensorProto.INT16: Stored(ElementType.INT16, False),
    TensorProto.UINT16: Stored(ElementType.INT16, True),
}
"""Types of integers that may have parameters."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """Integers of fewer than 8 bits; arrays hold them as int8, unsigned ones as the same numbers."""

    bits: int
    unsigned: bool


NARROW: dict[int, Narrow] = {
    getattr(TensorProto, name): Narrow(bits, unsigned)
    for name, bits, unsigned in (
        ("INT4", 4, False),
        ("UINT4", 4, True),
        ("INT2", 2, False),
        ("UINT2", 2, True),
    )
    if hasattr(TensorProto, name)
}
"""Types of constants that DequantizeLinear reads, besides QUANTIZED; the installed onnx may lack some."""


def is_unsigned(tensor: TensorProto) -> bool:
    """Whether it holds uint8 or uint16."""
    kind = QUANTIZED.get(tensor.data_type)
    return kind is not None and kind.unsigned


def element_name(data_type: int) -> str:
    """ONNX's name of an element type, in lower case; its number where it has none."""
    try:
        return str(TensorProto.DataType.Name(data_type)).lower()
    except ValueError:
        return f"number {data_type}"


def to_array(
    tensor: TensorProto,
    folder: Path | None = None,
    quantized: bool = False,
    halves: bool = False,
    data: memoryview | None = None,
) -> Array:
    """The data of a tensor; external data is read below `folder`.

    `quantized` admits the types of QUANTIZED, all as signed integers, and of NARROW as int8; `halves` reals
    of 16 bits, which come as numerics.half stores them. `data` is the raw data of a tensor that has none.

    Raises ModelError if the data is missing, escapes the folder or has the wrong size, and
    UnsupportedError for element types that qglow does not have.
    """
    where = f"tensor '{tensor.name}'" if tensor.name else "a tensor without a name"
    stored = QUANTIZED.get(tensor.data_type) if quantized else None
    if quantized and tensor.data_type in NARROW:
        return _narrow(tensor, folder, where, data)
    known = ELEMENTS | HALVES if halves else ELEMENTS
    element = known.get(tensor.data_type) if stored is None else stored.element
    if element is None:
        integers = {str(kind) for kind in QUANTIZED.values()} if quantized else set()
        kinds = ", ".join(sorted({e.name.lower() for e in ELEMENTS.values()} | integers))
        raise UnsupportedError(
            f"{where} has elements of type {element_name(tensor.data_type)}; supported are {kinds}"
        )
    if any(d < 0 for d in tensor.dims):
        raise ModelError(f"{where} has a negative dimension in {list(tensor.dims)}; export the model again")
    array = _data(tensor, folder, element, where, data)
    if stored is None or not stored.unsigned:
        return array
    return np.asarray(array ^ element.dtype.type(stored.shift))  # half of the range less: the highest bit


def _data(
    tensor: TensorProto, folder: Path | None, element: ElementType, where: str, data: memoryview | None
) -> Array:
    """The data as elements of this type, or of the unsigned one of its size, bit for bit."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, folder, element, where)
    if data is not None:
        _check_size(len(data), tensor, element, where)
        return np.frombuffer(data, element.dtype).reshape(tuple(tensor.dims)).copy()
    if tensor.HasField("raw_data"):
        _check_size(len(tensor.raw_data), tensor, element, where)
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(
            f"{where}: data does not fit shape {list(tensor.dims)} ({_one_line(error)}); the file is damaged"
        ) from error
    if element is ElementType.BFLOAT16:
        array = array.view(element.dtype)
    return np.ascontiguousarray(array, element.dtype).reshape(tuple(tensor.dims))


def _narrow(tensor: TensorProto, folder: Path | None, where: str, data: memoryview | None) -> Array:
    """int8 of integers that share bytes, the first one in the lowest bits."""
    kind, shape = NARROW[tensor.data_type], tuple(tensor.dims)
    if any(d < 0 for d in shape):
        raise ModelError(f"{where} has a negative dimension in {list(shape)}; export the model again")
    count, each = math.prod(shape), 8 // kind.bits
    stored = TensorProto(name=tensor.name, data_type=TensorProto.UINT8, dims=[-(-count // each)])
    stored.external_data.extend(tensor.external_data)
    stored.data_location = tensor.data_location
    if tensor.HasField("raw_data"):
        stored.raw_data = tensor.raw_data
    elif tensor.int32_data:
        stored.int32_data.extend(tensor.int32_data)
    packed = _data(stored, folder, ElementType.UINT8, where, data)
    parts = [(packed >> (kind.bits * number)) & ((1 << kind.bits) - 1) for number in range(each)]
    values = np.stack(parts, axis=-1).reshape(-1)[:count].astype(np.int8)
    if not kind.unsigned:
        values = values - (values >> (kind.bits - 1) << kind.bits).astype(np.int8)
    return np.ascontiguousarray(values.reshape(shape))


def read_tensor(path: Path | str) -> Array:
    """A serialized TensorProto, as in the `.pb` files of an ONNX test_data_set.

    Raises DataError if the file is missing, is no tensor or holds an unsupported type.
    """
    path = Path(path)
    tensor = TensorProto()
    try:
        tensor.ParseFromString(read_bytes(path))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except DecodeError as error:
        raise DataError(f"{path} is not a serialized ONNX tensor; it may be cut short") from error
    if tensor.data_type == TensorProto.UNDEFINED:
        raise DataError(f"{path} is not a serialized ONNX tensor: it states no element type")
    try:
        return to_array(tensor, path.parent)
    except (ModelError, UnsupportedError) as error:
        raise DataError(f"{path}: {error}") from error


def _check_size(size: int, tensor: TensorProto, element: ElementType, where: str) -> None:
    wanted = math.prod(tensor.dims) * element.size
    if size != wanted:
        raise ModelError(
            f"{where}: {size} bytes of data for shape {list(tensor.dims)} of {element.value}, "
            f"which takes {wanted}; the file is damaged"
        )


def _external(tensor: TensorProto, folder: Path | None, element: ElementType, where: str) -> Array:
    """The data in another file: part of a mapped file, or bytes of its own, neither to be written to."""
    length = declared_length(tensor, where)
    if length is not None:
        _check_size(length, tensor, element, where)
    data, file = external_data(tensor, folder, math.prod(tensor.dims) * element.size, where)
    _check_size(len(data), tensor, element, f"{where} in {file}")
    array = np.frombuffer(data, element.dtype).reshape(tuple(tensor.dims))
    return array if array.flags.aligned else array.copy()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
