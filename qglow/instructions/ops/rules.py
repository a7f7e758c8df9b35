"""Type rules that several families of operations share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array, ElementType, Quantization, Shape, TensorType
from qglow.instructions.operation import Operation, TypeErrorInOperation, Types, require
from qglow.numerics.elementwise import clip
from qglow.numerics.requantize import requantize

INFINITY = float("inf")


@dataclass(frozen=True)
class BoundedOperation(Operation):
    """Arithmetic whose result is clamped: to [lo, hi] in floats, to [q_lo, q_hi] in integers."""

    lo: float = -INFINITY
    hi: float = INFINITY
    q_lo: int = -128
    q_hi: int = 127

    def verify_bounds(self, dest: TensorType) -> None:
        """Bounds are in order, and integer bounds are values of the result's type."""
        require(self.lo <= self.hi, f"bounds lo={self.lo} and hi={self.hi} are not in order")
        require_integer_bounds(self.q_lo, self.q_hi, dest)

    def finish(self, acc: Array, multiplier: Array, dest: TensorType) -> Array:
        """Integer sums as clamped elements of `dest`: requantized, or float32 times the multiplier."""
        if dest.is_float:
            return clip(acc.astype(np.float32) * multiplier, self.lo, self.hi)
        return requantize(acc, multiplier, parameters_of(dest), self.q_lo, self.q_hi)


def require_integer_bounds(low: int, high: int, kind: TensorType) -> None:
    """Bounds are values of an integer type, int8 where there is none, in order."""
    wide = kind.element is ElementType.INT16
    least, most = (-32768, 32767) if wide else (-128, 127)
    require(least <= low <= high <= most, f"bounds {low}..{high} are not in order within {least}..{most}")


def require_float(types: Types, *names: str) -> None:
    """The present operands are float32."""
    for name in names:
        if name in types:
            require(types[name].is_float, f"{name} is {types[name]}, not float")


def require_reals(types: Types, *names: str) -> None:
    """The present operands are float32, or reals of 16 bits."""
    for name in names:
        if name in types:
            require(types[name].is_float or types[name].is_half, f"{name} is {types[name]}, not real")


def require_activation(types: Types, *names: str) -> None:
    """The present operands are float32, or int8 or int16 with one scale."""
    for name in names:
        if name in types and not types[name].is_float:
            require_integers(types, name)


def require_numbers(types: Types, *names: str) -> None:
    """The present operands are plain integers, booleans, or what `require_activation` takes."""
    for name in names:
        if name in types and not _is_number(types[name]):
            require_activation(types, name)


def _is_number(kind: TensorType) -> bool:
    return kind.is_plain_integer or kind.element is ElementType.BOOL


def require_integers(types: Types, *names: str) -> None:
    """The present operands are int8 or int16 with one scale; int16 has zero point 0."""
    for name in names:
        if name not in types:
            continue
        kind = types[name]
        require(is_integers(kind), f"{name} is {kind}, not int8 or int16 with one scale")
        symmetric = kind.element is ElementType.INT8 or parameters_of(kind).zero_point == 0
        require(symmetric, f"{name} is {kind}, and int16 has zero point 0")


def require_float_or_int8(types: Types, *names: str) -> None:
    """The present operands are float32, or int8 with one scale."""
    for name in names:
        if name in types and not types[name].is_float:
            require_int8(types, name)


def require_int8(types: Types, *names: str) -> None:
    """The present operands are int8 with one scale and zero point."""
    for name in names:
        if name not in types:
            continue
        kind = types[name]
        require(is_int8(kind), f"{name} is {kind}, not int8 with one scale")


def parameters_of(kind: TensorType) -> Quantization:
    """Scale and zero point of a type that `verify` has found to be int8 or int16."""
    if kind.quantization is None:
        raise TypeErrorInOperation(f"{kind} has no scale")
    return kind.quantization


def is_int8(kind: TensorType) -> bool:
    """Whether a type is int8 with one scale and zero point."""
    return kind.element is ElementType.INT8 and is_integers(kind)


def is_integers(kind: TensorType) -> bool:
    """Whether a type is int8 or int16 with one scale and zero point."""
    quantization = kind.quantization
    return quantization is not None and quantization.axis is None and quantization.element is kind.element


def require_same_elements(types: Types, first: str, *others: str) -> None:
    """Operands have one element type and one quantization."""
    wanted = types[first]
    for name in others:
        same = types[name].element is wanted.element and types[name].quantization == wanted.quantization
        require(same, f"{name} is {types[name]}, and its elements differ from those of {first}, {wanted}")


def require_same_kind(types: Types, first: str, *others: str) -> None:
    """Operands have one element type; quantization may differ."""
    for name in others:
        require(
            types[name].element is types[first].element,
            f"{name} is {types[name]}, and {first} is {types[first]}: one element type is needed",
        )


def require_one_kind(types: Types, *names: str) -> None:
    """Operands are all float32, or all int8 or int16 with one scale each."""
    require_activation(types, *names)
    if len({types[name].is_float for name in names}) > 1:
        listed = ", ".join(f"{name} is {types[name]}" for name in names)
        raise TypeErrorInOperation(f"{listed}: all float or all integers are needed")


def require_shape(types: Types, name: str, shape: Shape, why: str) -> None:
    """A present operand has this shape."""
    if name in types:
        require(types[name].shape == shape, f"{name} has shape {types[name].shape}, not {shape} ({why})")


def require_broadcast(types: Types, name: str, shape: Shape) -> None:
    """An operand has as many axes as `shape`, and repeats along those where it has extent 1."""
    own = types[name].shape
    fits = len(own) == len(shape) and all(d in (1, full) for d, full in zip(own, shape, strict=True))
    require(fits, f"{name} has shape {own}, which does not spread over {shape}")


def require_rank(types: Types, rank: int, *names: str) -> None:
    """The present operands have this many axes."""
    for name in names:
        if name in types:
            require(len(types[name].shape) == rank, f"{name} is {types[name]}, and needs {rank} axes")


def require_window(strides: Shape, pads: Shape, dilations: Shape = (1, 1)) -> None:
    """Attributes of a two-dimensional sliding window are of the right length and sign."""
    require(len(strides) == 2 and min(strides) >= 1, f"strides {strides} are not two positive numbers")
    require(len(dilations) == 2 and min(dilations) >= 1, f"dilations {dilations} are not two sizes")
    require(len(pads) == 4 and min(pads) >= 0, f"pads {pads} are not top, left, bottom, right")


def window_count(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """Positions of a window along an axis; less than 1 where it does not fit."""
    return (size + before + after - (dilation * (kernel - 1) + 1)) // stride + 1
