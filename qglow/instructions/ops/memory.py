"""Declarations of buffers and views, and filling and copying of buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Shape, TensorType
from qglow.instructions.operation import (
    Arrays,
    Operand,
    Operation,
    Types,
    inout,
    out,
    read,
    register,
    require,
)
from qglow.instructions.ops.rules import require_same_elements, require_same_kind
from qglow.numerics.quantize import quantize_by


@register
@dataclass(frozen=True)
class AllocActivation(Operation):
    """An activation buffer begins to exist; its contents are undefined."""

    opcode: ClassVar[str] = "allocactivation"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True),)
    touches_memory: ClassVar[bool] = False

    def verify(self, types: Types) -> None:
        """Any type can be allocated."""

    def execute(self, arrays: Arrays, types: Types) -> None:
        """The contents stay undefined."""


@register
@dataclass(frozen=True)
class DeallocActivation(Operation):
    """An activation buffer ceases to exist; its memory may be used for others."""

    opcode: ClassVar[str] = "deallocactivation"
    signature: ClassVar[tuple[Operand, ...]] = (out("src", strided=True),)
    touches_memory: ClassVar[bool] = False

    def verify(self, types: Types) -> None:
        """Any type can be deallocated."""

    def execute(self, arrays: Arrays, types: Types) -> None:
        """The contents become undefined."""


@register
@dataclass(frozen=True)
class TensorView(Operation):
    """Another name for memory of `src`: a slice that starts at `offsets`, or a reshape.

    The elements are those of `src`; their quantization may be another one, because a slice
    of memory may hold another value later.
    """

    opcode: ClassVar[str] = "tensorview"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))
    touches_memory: ClassVar[bool] = False

    offsets: Shape = ()

    def verify(self, types: Types) -> None:
        """A slice lies inside `src`; a reshape has as many elements."""
        require_same_kind(types, "src", "dest")
        dest, src = types["dest"], types["src"]
        if not self.offsets:
            require(dest.size == src.size, f"a reshape has {src.size} elements, not {dest.size}")
            return
        verify_slice(self.offsets, dest, src)

    def execute(self, arrays: Arrays, types: Types) -> None:
        """No memory is touched."""


@register
@dataclass(frozen=True)
class Copy(Operation):
    """dest = src."""

    opcode: ClassVar[str] = "copy"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))

    def verify(self, types: Types) -> None:
        """Both have one type."""
        require_same_elements(types, "src", "dest")
        require(types["dest"].shape == types["src"].shape, "dest and src have different shapes")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Element by element."""
        arrays["dest"][...] = arrays["src"]


@register
@dataclass(frozen=True)
class Splat(Operation):
    """Every element of dest is `value`, a real number that an int8 dest holds quantized."""

    opcode: ClassVar[str] = "splat"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True),)
    data_parallel: ClassVar[bool] = True

    value: float = 0.0

    def verify(self, types: Types) -> None:
        """Any type with at most one scale."""
        quantization = types["dest"].quantization
        require(quantization is None or quantization.axis is None, "dest has several scales")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Fill, after quantizing once."""
        arrays["dest"][...] = stored_value(self.value, types["dest"])


@register
@dataclass(frozen=True)
class FillPadding(Operation):
    """The padding around dest becomes its zero point (0.0 in floats); the inside stays."""

    opcode: ClassVar[str] = "fillpadding"
    signature: ClassVar[tuple[Operand, ...]] = (inout("dest", strided=True),)
    sees_padding: ClassVar[bool] = True

    padding: tuple[int, int, int, int] = (0, 0, 0, 0)

    def verify(self, types: Types) -> None:
        """`padding` is top, left, bottom, right around a four-dimensional buffer."""
        require(len(types["dest"].shape) == 4, "only four-dimensional buffers have padding")
        require(len(self.padding) == 4 and min(self.padding) >= 0, "padding is not top, left, bottom, right")

    def updated_slice(self, types: Types) -> tuple[Shape, Shape] | None:
        """Nothing inside of the padding."""
        nothing = (0,) * len(types["dest"].shape)
        return nothing, nothing

    def execute(self, arrays: Arrays, types: Types) -> None:
        """`dest` is the array with its padding."""
        dest = arrays["dest"]
        top, left, bottom, right = self.padding
        height, width = dest.shape[1:3]
        value = stored_value(0.0, types["dest"])
        dest[:, :top] = value
        dest[:, height - bottom :] = value
        dest[:, :, :left] = value
        dest[:, :, width - right :] = value


def stored_value(value: float, kind: TensorType) -> float | int:
    """The element of a buffer of type `kind` that stands for a real value."""
    if kind.quantization is None:
        return float(value) if kind.is_float else int(value)
    return int(quantize_by(np.array(value, np.float32), kind.quantization))


def verify_slice(offsets: Shape, part: TensorType, whole: TensorType, steps: Shape = ()) -> None:
    """Raise TypeErrorInOperation unless `part` at `offsets` lies inside `whole`."""
    rank = len(whole.shape)
    require(len(part.shape) == rank == len(offsets), f"offsets {offsets} do not fit {rank} axes")
    require(not steps or (len(steps) == rank and min(steps) >= 1), f"steps {steps} do not fit {rank} axes")
    for axis, (start, size) in enumerate(zip(offsets, part.shape, strict=True)):
        step = steps[axis] if steps else 1
        end = start + (size - 1) * step + 1 if size else start
        inside = start >= 0 and end <= whole.shape[axis]
        require(inside, f"axis {axis}: {start}..{end} is outside of 0..{whole.shape[axis]}")
