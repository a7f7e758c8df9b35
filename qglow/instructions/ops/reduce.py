"""Reductions and running sums along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import require_numbers, require_same_elements, require_shape
from qglow.numerics.reduce import KINDS, reduce, running_sum

SELECTING = ("max", "min")


@register
@dataclass(frozen=True)
class Reduce(Operation):
    """dest[o, 0, i] = the `kind` (sum, mean, max, min or prod) of src[o, :, i].

    Floats; max and min select among int8 elements, too, which do not change, and among booleans. Of plain
    integers all but the mean, sums and products wrapping around.
    """

    opcode: ClassVar[str] = "reduce"
    signature: ClassVar[tuple[Operand, ...]] = (out(), read())

    kind: str

    def verify(self, types: Types) -> None:
        """Three axes, of which dest has the middle one with extent 1."""
        require(self.kind in KINDS, f"kind '{self.kind}' is none of {', '.join(KINDS)}")
        src = types["src"]
        require_numbers(types, "src", "dest")
        require_same_elements(types, "src", "dest")
        counts = src.is_plain_integer and self.kind != "mean"
        fits = src.is_float or counts or self.kind in SELECTING
        require(fits, f"a {self.kind} of {src} is not supported")
        require(len(src.shape) == 3, f"src is {src}, it must have three axes")
        require_shape(types, "dest", (src.shape[0], 1, src.shape[2]), "that of src with one element")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.reduce."""
        arrays["dest"][...] = reduce(arrays["src"], self.kind, (1,))


@register
@dataclass(frozen=True)
class RunningSum(Operation):
    """dest[o, n, i] = the sum of src[o, :, i] up to place n, added one by one.

    exclusive: up to the place before. reverse: from the end. Floats, and integers, which wrap around.
    """

    opcode: ClassVar[str] = "runningsum"
    signature: ClassVar[tuple[Operand, ...]] = (out(), read())

    exclusive: bool = False
    reverse: bool = False

    def verify(self, types: Types) -> None:
        """Three axes, the same in src and dest."""
        src = types["src"]
        require_numbers(types, "src", "dest")
        require_same_elements(types, "src", "dest")
        require(src.is_float or src.is_plain_integer, f"sums of {src} are not supported")
        require(len(src.shape) == 3, f"src is {src}, it must have three axes")
        require_shape(types, "dest", src.shape, "that of src")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.reduce."""
        arrays["dest"][...] = running_sum(arrays["src"], 1, self.exclusive, self.reverse)
