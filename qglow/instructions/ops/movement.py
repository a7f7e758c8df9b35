"""Moving elements: transposition, writing and reading slices, selection by index, repetition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import ElementType, Shape
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
from qglow.instructions.ops.memory import verify_slice
from qglow.instructions.ops.rules import require_same_elements


@register
@dataclass(frozen=True)
class Transpose(Operation):
    """Axis i of dest is axis perm[i] of src."""

    opcode: ClassVar[str] = "transpose"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))

    perm: Shape

    def verify(self, types: Types) -> None:
        """`perm` is a permutation and dest has the permuted shape."""
        require_same_elements(types, "src", "dest")
        shape = types["src"].shape
        permutes = sorted(self.perm) == list(range(len(shape)))
        require(permutes, f"{self.perm} does not permute {len(shape)} axes")
        wanted = tuple(shape[axis] for axis in self.perm)
        require(types["dest"].shape == wanted, f"dest has shape {types['dest'].shape}, not {wanted}")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """numpy's transpose."""
        arrays["dest"][...] = arrays["src"].transpose(self.perm)


@register
@dataclass(frozen=True)
class Insert(Operation):
    """The slice of dest that starts at `offsets` becomes src; the rest of dest stays."""

    opcode: ClassVar[str] = "insert"
    signature: ClassVar[tuple[Operand, ...]] = (inout("dest", strided=True), read(strided=True))

    offsets: Shape

    def verify(self, types: Types) -> None:
        """The slice lies inside dest."""
        require_same_elements(types, "dest", "src")
        verify_slice(self.offsets, types["src"], types["dest"])

    def updated_slice(self, types: Types) -> tuple[Shape, Shape] | None:
        """Offsets and shape of the part of dest that src is written to."""
        return self.offsets, types["src"].shape

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Assign to the slice."""
        arrays["dest"][slices(self.offsets, types["src"].shape)] = arrays["src"]


@register
@dataclass(frozen=True)
class InsertAt(Operation):
    """Slice of dest that starts at `first` along `axis` becomes src; dest is kept from call to call.

    All other axes are equal. A start that leaves no room for src stands for the nearest that does, so that
    no memory outside of dest is ever written.
    """

    opcode: ClassVar[str] = "insertat"
    signature: ClassVar[tuple[Operand, ...]] = (inout("dest"), read(strided=True), read("first"))
    updates_state: ClassVar[bool] = True

    axis: int

    def verify(self, types: Types) -> None:
        """One whole number, and a src that fits into dest."""
        require_same_elements(types, "src", "dest")
        first, dest, src = types["first"], types["dest"].shape, types["src"].shape
        require(first.element is ElementType.INT64 and first.shape == (1,), f"first is {first}, not i64<1>")
        require(0 <= self.axis < len(dest), f"axis {self.axis} is not one of {len(dest)}")
        room = (*dest[: self.axis], *dest[self.axis + 1 :])
        taken = (*src[: self.axis], *src[self.axis + 1 :])
        fits = len(src) == len(dest) and taken == room and src[self.axis] <= dest[self.axis]
        require(fits, f"src of shape {src} does not fit into {dest} along axis {self.axis}")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Assign to the slice."""
        size = arrays["src"].shape[self.axis]
        first = int(np.clip(arrays["first"][0], 0, arrays["dest"].shape[self.axis] - size))
        before = (slice(None),) * self.axis
        arrays["dest"][(*before, slice(first, first + size))] = arrays["src"]


@register
@dataclass(frozen=True)
class Extract(Operation):
    """dest is the slice of src that starts at `offsets`, with every `steps`-th element."""

    opcode: ClassVar[str] = "extract"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))

    offsets: Shape
    steps: Shape = ()

    def verify(self, types: Types) -> None:
        """The slice lies inside src."""
        require_same_elements(types, "src", "dest")
        verify_slice(self.offsets, types["dest"], types["src"], self.steps)

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Copy the slice."""
        arrays["dest"][...] = arrays["src"][slices(self.offsets, types["dest"].shape, self.steps)]


@register
@dataclass(frozen=True)
class Gather(Operation):
    """Index i of dest's `axis` is index `indices[i]` of src's; all other axes are equal.

    Negative indices count from the end. One that is out of range stands for the nearest that
    is not, so that no memory outside of src is ever read.
    """

    opcode: ClassVar[str] = "gather"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True), read("indices"))

    axis: int

    def verify(self, types: Types) -> None:
        """A vector of integers, and dest as long as it along the axis."""
        require_same_elements(types, "src", "dest")
        shape, indices = types["src"].shape, types["indices"]
        require(0 <= self.axis < len(shape), f"axis {self.axis} is not one of {len(shape)}")
        integers = indices.element in (ElementType.INT32, ElementType.INT64)
        require(integers and len(indices.shape) == 1, f"indices is {indices}, not a vector of integers")
        require(shape[self.axis] > 0 or not indices.size, f"axis {self.axis} of src has no elements")
        wanted = (*shape[: self.axis], indices.size, *shape[self.axis + 1 :])
        require(types["dest"].shape == wanted, f"dest has shape {types['dest'].shape}, not {wanted}")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numpy.take."""
        extent = types["src"].shape[self.axis]
        indices = arrays["indices"].astype(np.int64)
        inside = np.clip(np.where(indices < 0, indices + extent, indices), 0, max(extent - 1, 0))
        arrays["dest"][...] = np.take(arrays["src"], inside, self.axis)


@register
@dataclass(frozen=True)
class Broadcast(Operation):
    """dest is src, repeated along the axes on which src has one element."""

    opcode: ClassVar[str] = "broadcast"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))

    def verify(self, types: Types) -> None:
        """Axes are equal, or 1 in src."""
        require_same_elements(types, "src", "dest")
        src, dest = types["src"].shape, types["dest"].shape
        fits = len(src) == len(dest) and all(a in (1, b) for a, b in zip(src, dest, strict=True))
        require(fits, f"src of shape {src} does not broadcast to {dest}")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """numpy broadcasting."""
        arrays["dest"][...] = arrays["src"]


def slices(offsets: Shape, shape: Shape, steps: Shape = ()) -> tuple[slice, ...]:
    """The numpy index of a slice with this start, shape and steps."""
    strides = steps or (1,) * len(shape)
    return tuple(
        slice(start, start + size * step, step)
        for start, size, step in zip(offsets, shape, strides, strict=True)
    )
