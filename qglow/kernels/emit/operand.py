"""Operands in memory: where elements are, and how int8 is held.

Every int8 activation (int8 with one scale) is held as `q + bias` with the target's `activation_bias`: an
unsigned byte where that is 128, a signed one where it is 0; so are its zero point and its bounds. All other
int8 data (weights, tables) stays signed until a kernel packs it, and int16 activations are signed, without a
bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qglow.core.types import Array, ElementType, Quantization, Shape, TensorType
from qglow.instructions.program import NO_PADDING, Buffer, Layout, Padding
from qglow.kernels.emit.builder import F32, F64, I8, I16, I32, I64, Index, Number, Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget

_LLVM_TYPES: dict[ElementType, Any] = {
    ElementType.FLOAT: F32,
    ElementType.DOUBLE: F64,
    ElementType.FLOAT16: I16,
    ElementType.BFLOAT16: I16,
    ElementType.INT8: I8,
    ElementType.INT16: I16,
    ElementType.INT32: I32,
    ElementType.INT64: I64,
    ElementType.UINT8: I8,
    ElementType.UINT16: I16,
    ElementType.UINT32: I32,
    ElementType.UINT64: I64,
    ElementType.BOOL: I8,
}


def is_int8_activation(kind: TensorType) -> bool:
    """Whether elements are int8 activations, which memory holds with the target's bias added."""
    quantization = kind.quantization
    return kind.element is ElementType.INT8 and quantization is not None and quantization.axis is None


def physical_dtype(kind: TensorType, bias: int) -> np.dtype[Any]:
    """The numpy type of what memory holds: uint8 for biased int8 activations, else the element's."""
    return np.dtype(np.uint8) if bias and is_int8_activation(kind) else kind.element.dtype


def to_physical(values: Array, kind: TensorType, bias: int) -> Array:
    """Convert logical values to what memory holds: uint8 for biased int8 activations, else the same."""
    if not bias or not is_int8_activation(kind):
        return np.asarray(values, kind.element.dtype, order="C")
    return np.asarray((np.asarray(values).astype(np.int16) + bias).astype(np.uint8), order="C")


def to_logical(stored: Array, kind: TensorType, bias: int) -> Array:
    """The inverse of `to_physical`; raw bytes are read as the type's elements."""
    if not bias or not is_int8_activation(kind):
        return np.asarray(stored, order="C").view(kind.element.dtype)
    return np.asarray(np.asarray(stored, order="C").view(np.uint8).astype(np.int16) - bias).astype(np.int8)


@dataclass(frozen=True)
class Memory:
    """An operand inside a kernel. `pointer` is the address of element (0, ..., 0).

    `strides` are in elements; the last axis of more than one element has stride 1. `padding`
    is the zero-point border (top, left, bottom, right) that may be read around axes 1 and 2,
    at negative and too large indices. `parameters`: scale and zero point (as memory holds it) that the code
    reads at run time; None where it embeds those of `type`.
    """

    pointer: Value
    type: TensorType
    strides: tuple[int, ...]
    padding: Padding = NO_PADDING
    bias: int = 0
    parameters: tuple[Number, Number] | None = None

    @property
    def shape(self) -> Shape:
        """The logical shape."""
        return self.type.shape

    @property
    def element(self) -> Any:
        """The LLVM type of one element."""
        return _LLVM_TYPES[self.type.element]

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return self.type.element.size

    @property
    def is_float(self) -> bool:
        """Whether elements are float32."""
        return self.type.is_float

    @property
    def scale(self) -> Number:
        """The scale of an integer activation."""
        return self.parameters[0] if self.parameters else _parameters(self.type).scale

    @property
    def zero_point(self) -> Number:
        """The zero point as memory holds it, with the bias of int8 activations."""
        return self.parameters[1] if self.parameters else _parameters(self.type).zero_point + self.bias

    @property
    def in_fixed_point(self) -> bool:
        """Whether sums are brought to the scale of this integer activation by rule 10."""
        return _parameters(self.type).fixed_point

    @property
    def repeats(self) -> bool:
        """Whether the last axis of more than one element repeats a single element, with a stride of 0."""
        strides = [step for step, size in zip(self.strides, self.shape, strict=True) if size != 1]
        return bool(strides) and strides[-1] == 0

    def spread(self, shape: Shape) -> Memory:
        """Broadcast the operand to a shape: axes of extent 1 get a stride of 0, so elements repeat."""
        if self.shape == shape:
            return self
        pairs = zip(self.shape, shape, self.strides, strict=True)
        strides = tuple(0 if own != full else step for own, full, step in pairs)
        return replace(self, type=self.type.with_shape(shape), strides=strides)

    def offset_bytes(self, *indices: int) -> int:
        """Distance in bytes from element (0, ..., 0) to an element."""
        pairs = zip(indices, self.strides, strict=True)
        return sum(index * stride for index, stride in pairs) * self.element_bytes

    def at(self, emitter: Emitter, *indices: Index) -> Value:
        """The address of an element; indices are Python ints or i64 values."""
        known = 0
        pointer = self.pointer
        for index, stride in zip(indices, self.strides, strict=True):
            if isinstance(index, int):
                known += index * stride * self.element_bytes
            else:
                pointer = emitter.offset(pointer, emitter.scaled(index, stride * self.element_bytes))
        return emitter.offset(pointer, known)


def without_scale(memory: Memory) -> Memory:
    """Return the operand with scale 1, to compare operands of code that does not depend on scales."""
    known = memory.type.quantization
    if known is None or known.axis is not None:
        return memory
    unit = replace(known, scales=(1.0,))
    return replace(memory, type=memory.type.quantized(unit))


def without_parameters(memory: Memory) -> Memory:
    """Return the operand without quantization, to compare operands of code that depends on none of it."""
    return replace(memory, type=TensorType(memory.type.element, memory.type.shape))


def _parameters(kind: TensorType) -> Quantization:
    if kind.quantization is None:
        raise ValueError(f"{kind} has no scale")
    return kind.quantization


def memory_of(pointer: Value, buffer: Buffer, target: VectorTarget) -> Memory:
    """The operand whose element (0, ..., 0) is at `pointer` and whose layout is the buffer's."""
    bias = target.activation_bias if is_int8_activation(buffer.type) else 0
    return Memory(pointer, buffer.type, buffer.layout.strides, readable_padding(buffer), bias)


def readable_padding(buffer: Buffer) -> Padding:
    """The zero-point border around a buffer: its own, or its base's where a slice spans the image."""
    if buffer.base is None:
        return buffer.padding
    base = buffer.base
    spans = (
        len(buffer.offsets) == 4
        and buffer.type.shape[1:3] == base.type.shape[1:3]
        and buffer.type.quantization == base.type.quantization
    )
    return readable_padding(base) if spans else NO_PADDING


@dataclass(frozen=True)
class RunLoops:
    """An iteration over equally shaped operands: outer loops around contiguous runs.

    `outer` are pairs of an extent and every operand's stride in bytes, outermost first; `length`
    elements lie side by side in every operand, or are one that repeats.
    """

    outer: tuple[tuple[int, tuple[int, ...]], ...]
    length: int


def contiguous_runs(shape: Shape, strides: Sequence[Sequence[int]], sizes: Sequence[int]) -> RunLoops:
    """Merge the axes of `shape` along which every operand is contiguous, or repeats one element.

    `strides[i]` are the strides of operand i in elements, `sizes[i]` is the size of its elements in bytes.
    """
    axes = [axis for axis in range(len(shape)) if shape[axis] != 1]
    length, start = 1, len(axes)
    repeats = [bool(axes) and s[axes[-1]] == 0 for s in strides]
    while start and all(
        s[axes[start - 1]] == (0 if repeated else length)
        for s, repeated in zip(strides, repeats, strict=True)
    ):
        start -= 1
        length *= shape[axes[start]]
    merged: list[tuple[int, tuple[int, ...]]] = []
    for axis in axes[:start]:
        extent = shape[axis]
        step = tuple(s[axis] * size for s, size in zip(strides, sizes, strict=True))
        if merged and all(before == extent * now for before, now in zip(merged[-1][1], step, strict=True)):
            merged[-1] = (merged[-1][0] * extent, step)
        else:
            merged.append((extent, step))
    return RunLoops(tuple(merged), length)


def dense_strides(shape: Shape) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return Layout.dense(shape).strides


def is_dense(memory: Memory) -> bool:
    """Whether elements lie in one run in row-major order."""
    pairs = zip(memory.shape, memory.strides, dense_strides(memory.shape), strict=True)
    return math.prod(memory.shape) == 0 or all(size == 1 or a == b for size, a, b in pairs)
