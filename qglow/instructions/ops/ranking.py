"""The first elements along one axis in their order, and where they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import ElementType, TensorType
from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import require_numbers, require_same_elements
from qglow.numerics.ranking import first_indices, first_values


@register
@dataclass(frozen=True)
class FirstIndices(Operation):
    """dest[o, n, i] = the place in src[o, :, i] of the element that ranks n-th, as i64.

    The largest rank first, else the smallest; of equal ones the lower place, with `last` the higher.
    """

    opcode: ClassVar[str] = "firstindices"
    signature: ClassVar[tuple[Operand, ...]] = (out(), read())

    largest: bool = True
    last: bool = False

    def verify(self, types: Types) -> None:
        """Three axes, of which dest has no more along the middle one."""
        require(types["dest"].element is ElementType.INT64, f"dest is {types['dest']}, not i64")
        _verify(types)

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.ranking."""
        count = arrays["dest"].shape[1]
        arrays["dest"][...] = first_indices(arrays["src"], 1, count, self.largest, self.last)


@register
@dataclass(frozen=True)
class FirstValues(Operation):
    """dest[o, n, i] = the element of src[o, :, i] that ranks n-th; see firstindices."""

    opcode: ClassVar[str] = "firstvalues"
    signature: ClassVar[tuple[Operand, ...]] = (out(), read())

    largest: bool = True

    def verify(self, types: Types) -> None:
        """Three axes, of which dest has no more along the middle one; elements of one type."""
        require_same_elements(types, "src", "dest")
        _verify(types)

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.ranking."""
        count = arrays["dest"].shape[1]
        arrays["dest"][...] = first_values(arrays["src"], 1, count, self.largest)


def _verify(types: Types) -> None:
    require_numbers(types, "src")
    dest, src = types["dest"], types["src"]
    require(len(src.shape) == 3, f"src is {src}, it must have three axes")
    require(_fits(dest, src), f"dest is {dest}, it must be {src} with as many or fewer along the middle axis")


def _fits(dest: TensorType, src: TensorType) -> bool:
    same = len(dest.shape) == 3 and dest.shape[::2] == src.shape[::2]
    return same and dest.shape[1] <= src.shape[1] < 1 << 31
