"""Between floats and int8, between int8 parameters, and tables of 256 entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import ElementType
from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import (
    int8_parameters,
    require_float,
    require_int8,
    require_int8_bounds,
    require_shape,
)
from qglow.numerics import quantize as numerics
from qglow.numerics.requantize import rescale
from qglow.numerics.tables import TABLE_SIZE, apply_table


@register
@dataclass(frozen=True)
class Quantize(Operation):
    """Float32 to int8 with the parameters of dest."""

    opcode: ClassVar[str] = "quantize"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))
    data_parallel: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """float in, int8 out."""
        require_float(types, "src")
        require_int8(types, "dest")
        require_shape(types, "dest", types["src"].shape, "that of src")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """numerics.quantize."""
        arrays["dest"][...] = numerics.quantize_by(arrays["src"], int8_parameters(types["dest"]))


@register
@dataclass(frozen=True)
class Dequantize(Operation):
    """int8 to float32 with the parameters of src."""

    opcode: ClassVar[str] = "dequantize"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))
    data_parallel: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """int8 in, float out."""
        require_int8(types, "src")
        require_float(types, "dest")
        require_shape(types, "dest", types["src"].shape, "that of src")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """numerics.quantize."""
        arrays["dest"][...] = numerics.dequantize_by(arrays["src"], int8_parameters(types["src"]))


@register
@dataclass(frozen=True)
class Rescale(Operation):
    """int8 to int8 of other parameters, held within [q_lo, q_hi]."""

    opcode: ClassVar[str] = "rescale"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "src"),)
    data_parallel: ClassVar[bool] = True

    q_lo: int = -128
    q_hi: int = 127

    def verify(self, types: Types) -> None:
        """int8 in and out."""
        require_int8_bounds(self.q_lo, self.q_hi)
        require_int8(types, "dest", "src")
        require_shape(types, "dest", types["src"].shape, "that of src")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """numerics.requantize."""
        source, target = int8_parameters(types["src"]), int8_parameters(types["dest"])
        arrays["dest"][...] = rescale(arrays["src"], source, target, self.q_lo, self.q_hi)


@register
@dataclass(frozen=True)
class Lookup(Operation):
    """dest = table[src + 128]."""

    opcode: ClassVar[str] = "lookup"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True), read("table"))
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "src"),)
    data_parallel: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """int8 in and out, and 256 entries."""
        require_int8(types, "dest", "src")
        require_shape(types, "dest", types["src"].shape, "that of src")
        require(types["table"].element is ElementType.INT8, f"table is {types['table']}, not int8")
        require_shape(types, "table", (TABLE_SIZE,), "one entry a value")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """numerics.tables."""
        arrays["dest"][...] = apply_table(arrays["src"], arrays["table"])
