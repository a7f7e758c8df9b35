"""Elementwise arithmetic: sums, products, quotients, clamps, affine maps of channels.

All operands float32, or all integers, int8 or int16, each with its own scale and zero point. Arithmetic of
two operands takes plain integers, too, all of one type; results wrap around at its ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import Array
from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import (
    INFINITY,
    BoundedOperation,
    parameters_of,
    require_broadcast,
    require_float,
    require_one_kind,
    require_same_elements,
    require_shape,
)
from qglow.numerics import integers
from qglow.numerics.affine import affine_float, affine_steps
from qglow.numerics.elementwise import (
    add,
    add_int8,
    clip,
    div,
    div_int8,
    mul,
    mul_int8,
    power,
    power_int8,
    prelu,
    prelu_int8,
    sub,
    sub_int8,
)

UNARY = (out(strided=True), read(strided=True))


@dataclass(frozen=True)
class _Binary(BoundedOperation):
    """Two operands that spread over the shape of dest."""

    signature: ClassVar[tuple[Operand, ...]] = (
        out(strided=True),
        read("lhs", strided=True),
        read("rhs", strided=True),
    )
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "lhs"), ("dest", "rhs"))
    data_parallel: ClassVar[bool] = True
    in_float: ClassVar[Callable[..., Array]]
    in_int8: ClassVar[Callable[..., Array]]
    in_integers: ClassVar[Callable[..., Array]]

    def verify(self, types: Types) -> None:
        """One element type, and shapes that spread."""
        self.verify_bounds(types["dest"])
        if types["dest"].is_plain_integer:
            require_same_elements(types, "dest", "lhs", "rhs")
        else:
            require_one_kind(types, "dest", "lhs", "rhs")
        for name in ("lhs", "rhs"):
            require_broadcast(types, name, types["dest"].shape)

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.elementwise."""
        lhs, rhs = arrays["lhs"], arrays["rhs"]
        if types["dest"].is_float:
            arrays["dest"][...] = type(self).in_float(lhs, rhs, self.lo, self.hi)
            return
        if types["dest"].is_plain_integer:
            arrays["dest"][...] = type(self).in_integers(lhs, rhs)
            return
        of_lhs, of_rhs, of_dest = (parameters_of(types[name]) for name in ("lhs", "rhs", "dest"))
        arrays["dest"][...] = type(self).in_int8(lhs, of_lhs, rhs, of_rhs, of_dest, self.q_lo, self.q_hi)


@register
@dataclass(frozen=True)
class ElementAdd(_Binary):
    """dest = clamp(lhs + rhs)."""

    opcode: ClassVar[str] = "elementadd"
    in_float: ClassVar[Callable[..., Array]] = staticmethod(add)
    in_int8: ClassVar[Callable[..., Array]] = staticmethod(add_int8)
    in_integers: ClassVar[Callable[..., Array]] = staticmethod(integers.sum_of)


@register
@dataclass(frozen=True)
class ElementSub(_Binary):
    """dest = clamp(lhs - rhs)."""

    opcode: ClassVar[str] = "elementsub"
    in_float: ClassVar[Callable[..., Array]] = staticmethod(sub)
    in_int8: ClassVar[Callable[..., Array]] = staticmethod(sub_int8)
    in_integers: ClassVar[Callable[..., Array]] = staticmethod(integers.difference)


@register
@dataclass(frozen=True)
class ElementMul(_Binary):
    """dest = clamp(lhs * rhs)."""

    opcode: ClassVar[str] = "elementmul"
    in_float: ClassVar[Callable[..., Array]] = staticmethod(mul)
    in_int8: ClassVar[Callable[..., Array]] = staticmethod(mul_int8)
    in_integers: ClassVar[Callable[..., Array]] = staticmethod(integers.product)


@register
@dataclass(frozen=True)
class ElementDiv(_Binary):
    """dest = clamp(lhs / rhs), of int8 through float."""

    opcode: ClassVar[str] = "elementdiv"
    in_float: ClassVar[Callable[..., Array]] = staticmethod(div)
    in_int8: ClassVar[Callable[..., Array]] = staticmethod(div_int8)
    in_integers: ClassVar[Callable[..., Array]] = staticmethod(integers.quotient)


@register
@dataclass(frozen=True)
class ElementPower(_Binary):
    """dest = clamp(lhs^rhs), of int8 through float."""

    opcode: ClassVar[str] = "elementpower"
    in_float: ClassVar[Callable[..., Array]] = staticmethod(power)
    in_int8: ClassVar[Callable[..., Array]] = staticmethod(power_int8)
    in_integers: ClassVar[Callable[..., Array]] = staticmethod(integers.power)


@register
@dataclass(frozen=True)
class PRelu(Operation):
    """dest = src, below 0 slope * src, of int8 through float; the slope is float and spreads over dest."""

    opcode: ClassVar[str] = "prelu"
    signature: ClassVar[tuple[Operand, ...]] = (*UNARY, read("slope", strided=True))
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "src"),)
    data_parallel: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """dest and src of one shape and element type, a float slope."""
        require_one_kind(types, "src", "dest")
        require_shape(types, "src", types["dest"].shape, "that of dest")
        require_float(types, "slope")
        require_broadcast(types, "slope", types["dest"].shape)

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.elementwise."""
        src, slope = arrays["src"], arrays["slope"]
        if types["src"].is_float:
            arrays["dest"][...] = prelu(src, slope)
            return
        of_src, of_dest = parameters_of(types["src"]), parameters_of(types["dest"])
        arrays["dest"][...] = prelu_int8(src, of_src, slope, of_dest)


@register
@dataclass(frozen=True)
class Clip(Operation):
    """dest = clamp(src) in float32; NaN stays."""

    opcode: ClassVar[str] = "clip"
    signature: ClassVar[tuple[Operand, ...]] = UNARY
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "src"),)
    data_parallel: ClassVar[bool] = True

    lo: float = -INFINITY
    hi: float = INFINITY

    def verify(self, types: Types) -> None:
        """Floats of one shape; bounds in order."""
        require(self.lo <= self.hi, f"bounds lo={self.lo} and hi={self.hi} are not in order")
        require_float(types, "dest", "src")
        require_shape(types, "src", types["dest"].shape, "that of dest")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.elementwise."""
        arrays["dest"][...] = clip(arrays["src"], self.lo, self.hi)


@register
@dataclass(frozen=True)
class Affine(BoundedOperation):
    """dest = clamp(src * scale[c] + shift[c]), c the index along the last axis.

    For int8, `scale` and `shift` are those of numerics.affine.affine_multipliers, which take
    src - zero point to steps of dest.
    """

    opcode: ClassVar[str] = "affine"
    signature: ClassVar[tuple[Operand, ...]] = (*UNARY, read("scale"), read("shift"))
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "src"),)
    data_parallel: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """dest and src of one shape and element type; one float scale and shift a channel."""
        self.verify_bounds(types["dest"])
        require_one_kind(types, "src", "dest")
        shape = types["src"].shape
        require(len(shape) >= 1, "src has no channel axis")
        require_shape(types, "dest", shape, "that of src")
        require_float(types, "scale", "shift")
        require_shape(types, "scale", shape[-1:], "one a channel")
        require_shape(types, "shift", shape[-1:], "one a channel")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.affine along the last axis."""
        src, scale, shift = arrays["src"], arrays["scale"], arrays["shift"]
        if types["src"].is_float:
            arrays["dest"][...] = affine_float(src, scale, shift, -1, self.lo, self.hi)
            return
        zero, dest = parameters_of(types["src"]).zero_point, parameters_of(types["dest"])
        arrays["dest"][...] = affine_steps(src, zero, scale, shift, dest, self.q_lo, self.q_hi, -1)
