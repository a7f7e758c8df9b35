"""Moving elements: transposition, and writing and reading slices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import Shape
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
        """Where src goes."""
        return self.offsets, types["src"].shape

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Assign to the slice."""
        arrays["dest"][slices(self.offsets, types["src"].shape)] = arrays["src"]


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


def slices(offsets: Shape, shape: Shape, steps: Shape = ()) -> tuple[slice, ...]:
    """The numpy index of a slice with this start, shape and steps."""
    strides = steps or (1,) * len(shape)
    return tuple(
        slice(start, start + size * step, step)
        for start, size, step in zip(offsets, shape, strides, strict=True)
    )
