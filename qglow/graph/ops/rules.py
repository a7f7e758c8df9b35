"""Checks and types that several operators share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from qglow.core.types import Array, ElementType, Quantization, Shape, TensorType
from qglow.graph.operator import Operator, OperatorTypeError, require
from qglow.graph.traits import Bounds
from qglow.graph.traits import Types as Types

Arrays = Sequence[Array | None]


def operand(inputs: Types, index: int, name: str) -> TensorType:
    """Type of a required operand, float in place of quantized integers and of 16 bits.

    Raises OperatorTypeError.
    """
    kind = inputs[index] if index < len(inputs) else None
    if kind is None:
        raise OperatorTypeError(f"operand {name} is missing")
    return TensorType(ElementType.FLOAT, kind.shape) if kind.is_quantized or kind.is_half else kind


def float_operand(inputs: Types, index: int, name: str, rank: int | None = None) -> TensorType:
    """A required operand that must hold reals, of this rank if given. Raises OperatorTypeError."""
    kind = operand(inputs, index, name)
    if not kind.is_float:  # the text of a type takes long
        raise OperatorTypeError(f"operand {name} is {kind}, it must be float")
    if rank is not None and len(kind.shape) != rank:
        raise OperatorTypeError(f"operand {name} is {kind}, it must have {rank} axes")
    return kind


def vector_operand(inputs: Types, index: int, name: str, length: int) -> TensorType:
    """A required float vector of this length. Raises OperatorTypeError."""
    kind = float_operand(inputs, index, name)
    require(kind.shape == (length,), f"operand {name} is {kind}, it must be <{length}>")
    return kind


def bias_operand(inputs: Types, index: int, channels: int) -> None:
    """Check the optional bias of an operator that accumulates: float, or int32 beside int8."""
    kind = inputs[index] if index < len(inputs) else None
    if kind is None:
        return
    quantized = inputs[0] is not None and inputs[0].is_quantized
    wanted = ElementType.INT32 if quantized else ElementType.FLOAT
    require(
        kind.element is wanted and kind.shape == (channels,),
        f"operand bias is {kind}, it must be {wanted.value}<{channels}>",
    )


def given(inputs: Arrays, index: int) -> Array:
    """The array of a required operand."""
    array = inputs[index]
    if array is None:
        raise OperatorTypeError(f"operand {index} is missing")
    return array


def optional(inputs: Arrays, index: int) -> Array | None:
    """The array of an optional operand."""
    return inputs[index] if index < len(inputs) else None


def parameters_of(types: Types, index: int) -> Quantization | None:
    """The quantization of an operand; None for a float or an absent one."""
    kind = types[index] if index < len(types) else None
    return None if kind is None else kind.quantization


def broadcast_shape(*shapes: Shape) -> Shape:
    """The common shape under ONNX (numpy) broadcasting. Raises OperatorTypeError."""
    try:
        return tuple(int(d) for d in np.broadcast_shapes(*shapes))
    except ValueError:
        listed = " and ".join(str(list(shape)) for shape in shapes)
        raise OperatorTypeError(f"shapes {listed} do not broadcast") from None


def normal_axis(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises OperatorTypeError when out of range."""
    require(-rank <= axis < rank, f"axis {axis} is out of range for {rank} axes")
    return axis % rank


class Bounded(Operator):
    """Base of operators that cut their real results off at `lo` and `hi`: a fused Relu or Clip."""

    lo: float
    hi: float

    @property
    def bounds(self) -> Bounds:
        """`lo` and `hi`."""
        return self.lo, self.hi

    def bounded(self, lo: float, hi: float) -> Self:
        """The same with these fields."""
        fields: dict[str, Any] = {"lo": lo, "hi": hi}
        return dataclasses.replace(self, **fields)


class Movement(Operator):
    """Base of operators that move or select elements and never change one: they run on any type."""

    moves_elements: ClassVar[bool] = True

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """The same movement of integers, whose parameters stay."""
        if parameters_of(input_types, 0) == output_types[0].quantization:
            return self.evaluate(inputs)
        return super().evaluate_quantized(inputs, input_types, output_types)
