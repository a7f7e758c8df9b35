"""Conversions of floats and integers and between parameters, bytes of int16, tables of 256 entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, ElementType, Quantization
from qglow.instructions.operation import (
    Access,
    Arrays,
    Operand,
    Operation,
    Types,
    out,
    read,
    register,
    require,
)
from qglow.instructions.ops.rules import (
    BoundedOperation,
    parameters_of,
    require_activation,
    require_float,
    require_int8,
    require_integer_bounds,
    require_integers,
    require_shape,
)
from qglow.numerics import quantize as numerics
from qglow.numerics import wide
from qglow.numerics.requantize import rescale
from qglow.numerics.tables import TABLE_SIZE, apply_table


@register
@dataclass(frozen=True)
class Quantize(Operation):
    """Float32 to int8 or int16 with the parameters of dest."""

    opcode: ClassVar[str] = "quantize"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))
    data_parallel: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """float in, integers out."""
        require_float(types, "src")
        require_integers(types, "dest")
        require_shape(types, "dest", types["src"].shape, "that of src")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.quantize."""
        arrays["dest"][...] = numerics.quantize_by(arrays["src"], parameters_of(types["dest"]))


@register
@dataclass(frozen=True)
class Dequantize(Operation):
    """int8 or int16 to float32 with the parameters of src."""

    opcode: ClassVar[str] = "dequantize"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))
    data_parallel: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """Integers in, float out."""
        require_integers(types, "src")
        require_float(types, "dest")
        require_shape(types, "dest", types["src"].shape, "that of src")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.quantize."""
        arrays["dest"][...] = numerics.dequantize_by(arrays["src"], parameters_of(types["src"]))


@register
@dataclass(frozen=True)
class Rescale(Operation):
    """Integers to integers of other parameters, int8 or int16, held within [q_lo, q_hi]."""

    opcode: ClassVar[str] = "rescale"
    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "src"),)
    data_parallel: ClassVar[bool] = True

    q_lo: int = -128
    q_hi: int = 127

    def verify(self, types: Types) -> None:
        """Integers in and out."""
        require_integer_bounds(self.q_lo, self.q_hi, types["dest"])
        require_integers(types, "dest", "src")
        require_shape(types, "dest", types["src"].shape, "that of src")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.requantize."""
        source, target = parameters_of(types["src"]), parameters_of(types["dest"])
        arrays["dest"][...] = rescale(arrays["src"], source, target, self.q_lo, self.q_hi)


@dataclass(frozen=True)
class _Byte(Operation):
    """int8 of one byte of every int16 element."""

    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))
    data_parallel: ClassVar[bool] = True
    meaning: ClassVar[Callable[[Array], Array]]
    parameters: ClassVar[Callable[[Quantization], Quantization]]

    def verify(self, types: Types) -> None:
        """int16 in, int8 with the parameters of the byte out."""
        require_integers(types, "src", "dest")
        source = parameters_of(types["src"])
        require(source.is_wide, f"src is {types['src']}, not int16")
        wanted = type(self).parameters(source)
        require(types["dest"].quantization == wanted, f"dest is {types['dest']}, its parameters not {wanted}")
        require_shape(types, "dest", types["src"].shape, "that of src")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.wide."""
        arrays["dest"][...] = type(self).meaning(arrays["src"])


@register
@dataclass(frozen=True)
class HighByte(_Byte):
    """dest = floor(src / 256)."""

    opcode: ClassVar[str] = "highbyte"
    meaning: ClassVar[Callable[[Array], Array]] = staticmethod(wide.high_byte)
    parameters: ClassVar[Callable[[Quantization], Quantization]] = staticmethod(wide.high_parameters)


@register
@dataclass(frozen=True)
class LowByte(_Byte):
    """dest = src modulo 256, stored 128 less."""

    opcode: ClassVar[str] = "lowbyte"
    meaning: ClassVar[Callable[[Array], Array]] = staticmethod(wide.low_byte)
    parameters: ClassVar[Callable[[Quantization], Quantization]] = staticmethod(wide.low_parameters)


@register
@dataclass(frozen=True)
class Requantize(BoundedOperation):
    """dest = clamp(float32(256 * high + low) * multiplier[c]), c the index along the last axis.

    `low` and `high` are int32 sums of a Convolution or FullyConnected; without `high`, low is all of it.
    The integer is rounded to float32 once. dest is integers with a scale, or float32.
    """

    opcode: ClassVar[str] = "requantize"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(strided=True),
        read("low", strided=True),
        read("multiplier"),
        Operand("high", Access.IN, optional=True, strided=True),
    )
    data_parallel: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """int32 sums of one shape, one float multiplier a channel, an activation."""
        self.verify_bounds(types["dest"])
        require_activation(types, "dest")
        require_float(types, "multiplier")
        scale = types["dest"].quantization
        exceeds = "high" in types and scale is not None and scale.fixed_point
        require(not exceeds, "sums of two parts exceed int32, and have no fixed point")
        shape = types["dest"].shape
        for name in ("low", "high"):
            plain = name not in types or types[name].element is ElementType.INT32
            require(plain, f"{name} is {types.get(name)}, not i32")
            require_shape(types, name, shape, "that of dest")
        require_shape(types, "multiplier", shape[-1:], "one a channel")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.wide, then rule 5."""
        total = arrays["low"].astype(np.int64)
        if "high" in arrays:
            total = wide.join(arrays["low"], arrays["high"])
        arrays["dest"][...] = self.finish(total, arrays["multiplier"], types["dest"])


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
        """Compute with numerics.tables."""
        arrays["dest"][...] = apply_table(arrays["src"], arrays["table"])
