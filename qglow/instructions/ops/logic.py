"""Comparisons, and conversions between element types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import ElementType
from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import require_broadcast, require_same_elements, require_shape
from qglow.numerics import logic as numerics
from qglow.numerics.integers import OPERATIONS


@register
@dataclass(frozen=True)
class Compare(Operation):
    """dest = whether `relation` (numerics.logic.RELATIONS) holds between lhs and rhs, both spread."""

    opcode: ClassVar[str] = "compare"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(strided=True),
        read("lhs", strided=True),
        read("rhs", strided=True),
    )
    data_parallel: ClassVar[bool] = True

    relation: str = "equal"

    def verify(self, types: Types) -> None:
        """bool out, plain elements of one type in."""
        require(self.relation in numerics.RELATIONS, f"there is no relation '{self.relation}'")
        require(types["dest"].element is ElementType.BOOL, f"dest is {types['dest']}, not bool")
        require_same_elements(types, "lhs", "rhs")
        require(not types["lhs"].is_quantized, f"lhs is {types['lhs']}, which is quantized")
        for name in ("lhs", "rhs"):
            require_broadcast(types, name, types["dest"].shape)

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.logic."""
        arrays["dest"][...] = numerics.RELATIONS[self.relation](arrays["lhs"], arrays["rhs"])


@register
@dataclass(frozen=True)
class Whole(Operation):
    """dest = the `operation` (numerics.integers.OPERATIONS) of lhs and rhs, plain integers, both spread."""

    opcode: ClassVar[str] = "whole"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(strided=True),
        read("lhs", strided=True),
        read("rhs", strided=True),
    )
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "lhs"), ("dest", "rhs"))
    data_parallel: ClassVar[bool] = True

    operation: str

    def verify(self, types: Types) -> None:
        """A known operation, plain integers of one type, and shapes that spread."""
        require(self.operation in OPERATIONS, f"'{self.operation}' is none of {', '.join(OPERATIONS)}")
        require(types["dest"].is_plain_integer, f"dest is {types['dest']}, not plain integers")
        require_same_elements(types, "dest", "lhs", "rhs")
        for name in ("lhs", "rhs"):
            require_broadcast(types, name, types["dest"].shape)

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.integers."""
        arrays["dest"][...] = OPERATIONS[self.operation](arrays["lhs"], arrays["rhs"])


@register
@dataclass(frozen=True)
class Cast(Operation):
    """dest = src in the element type of dest."""

    opcode: ClassVar[str] = "cast"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))
    data_parallel: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """One shape, nothing quantized."""
        require_shape(types, "src", types["dest"].shape, "that of dest")
        for name in ("dest", "src"):
            require(not types[name].is_quantized, f"{name} is {types[name]}, which is quantized")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.logic."""
        arrays["dest"][...] = numerics.cast(arrays["src"], types["dest"].element)
