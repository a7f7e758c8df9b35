"""The same elements in another shape, order or type. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from qglow.core.types import Array, ElementType, TensorType
from qglow.graph.axes import AxisEffect, reshaped_effect
from qglow.graph.operator import KeepFloat, Operator, Policy, SameAs, Unify, register, require
from qglow.graph.ops.rules import Arrays, Movement, Types, given, normal_axis, operand
from qglow.numerics.logic import cast


@register
@dataclass(frozen=True)
class Reshape(Movement):
    """The same elements in row-major order in another, fully known shape."""

    name: ClassVar[str] = "Reshape"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = SameAs(0)

    rearranges: ClassVar[bool] = True
    states_shape: ClassVar[bool] = True

    shape: tuple[int, ...]

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """`shape`."""
        x = operand(inputs, 0, "x")
        fits = min(self.shape, default=0) >= 0 and math.prod(self.shape) == x.size
        require(fits, f"{x} does not reshape to {list(self.shape)}")
        return (x.with_shape(self.shape),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.reshape."""
        return (given(inputs, 0).reshape(self.shape),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The axis of the result with as many elements in front of it."""
        return reshaped_effect(axis, operand(inputs, 0, "x").shape, self.shape)

    def passes_through(self, inputs: Types) -> bool:
        """A reshape to the same shape."""
        return True

    def with_channels(self, count: int, inputs: Types) -> Self | None:
        """Reshape for `count` channels, if it only removes axes of one element behind the channels."""
        plain = self.shape == operand(inputs, 0, "x").shape[:2]
        return replace(self, shape=(self.shape[0], count)) if plain else None


@register
@dataclass(frozen=True)
class Transpose(Movement):
    """Axis i of the result is axis perm[i] of x."""

    name: ClassVar[str] = "Transpose"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = SameAs(0)

    rearranges: ClassVar[bool] = True

    perm: tuple[int, ...]

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The permuted shape."""
        x = operand(inputs, 0, "x")
        permutes = sorted(self.perm) == list(range(len(x.shape)))
        require(permutes, f"{list(self.perm)} does not permute the axes of {x}")
        return (x.with_shape(tuple(x.shape[axis] for axis in self.perm)),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.transpose."""
        return (np.ascontiguousarray(given(inputs, 0).transpose(self.perm)).reshape(self._shape(inputs)),)

    def _shape(self, inputs: Arrays) -> tuple[int, ...]:
        # ascontiguousarray turns a scalar into a vector.
        return tuple(given(inputs, 0).shape[axis] for axis in self.perm)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The place of the axis in the result."""
        return AxisEffect(self.perm.index(axis))

    def passes_through(self, inputs: Types) -> bool:
        """A transpose that leaves all axes in order."""
        return self.perm == tuple(range(len(self.perm)))


@register
@dataclass(frozen=True)
class ChannelShuffle(Movement):
    """Channel i * k + j of x, in `groups` of k channels, becomes channel j * groups + i.

    Zhang et al. 2018, ShuffleNet (arXiv:1707.01083), 3.1: with groups i and places j as axes of their
    own, the two are transposed. https://onnx.ai/onnx/operators/ has no such operator.
    """

    name: ClassVar[str] = "ChannelShuffle"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = SameAs(0)

    rearranges: ClassVar[bool] = True

    groups: int

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The type of x, [N, C, ...]."""
        x = operand(inputs, 0, "x")
        require(len(x.shape) >= 2, f"operand x is {x}, it has no channels")
        fits = self.groups >= 1 and x.shape[1] % self.groups == 0
        require(fits, f"{x} has no channels for {self.groups} groups of equal size")
        return (x,)

    def apart(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape of x with its channels as two axes: groups, and places in a group."""
        batch, channels, *pixels = shape
        return (batch, self.groups, channels // self.groups, *pixels)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The same axis, if it is not that of the channels."""
        return AxisEffect(axis) if axis != 1 else None

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Reshape, transpose, reshape."""
        x = given(inputs, 0)
        return (x.reshape(self.apart(x.shape)).swapaxes(1, 2).reshape(x.shape),)


@register
@dataclass(frozen=True)
class Concat(Movement):
    """Operands one after the other along an axis. Quantized ones share their parameters."""

    name: ClassVar[str] = "Concat"
    operands: ClassVar[tuple[str, ...]] = ("x*",)
    policy: ClassVar[Policy] = Unify()

    exact_in_onnxruntime: ClassVar[bool] = True

    axis: int

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The first operand's shape, with all extents along the axis added."""
        kinds = [operand(inputs, index, f"x{index}") for index in range(max(len(inputs), 1))]
        first = kinds[0]
        axis = normal_axis(self.axis, len(first.shape))
        for kind in kinds[1:]:
            fits = kind.element is first.element and len(kind.shape) == len(first.shape)
            same = (
                kind.shape[:axis] == first.shape[:axis] and kind.shape[axis + 1 :] == first.shape[axis + 1 :]
            )
            require(fits and same, f"{first} and {kind} do not concatenate along axis {axis}")
        total = sum(kind.shape[axis] for kind in kinds)
        return (first.with_shape((*first.shape[:axis], total, *first.shape[axis + 1 :])),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.concatenate."""
        return (np.concatenate([given(inputs, index) for index in range(len(inputs))], self.axis),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The same axis, unless operands stand one after the other along it."""
        return None if axis == self.joined_axis(inputs) else AxisEffect(axis)

    def joined_axis(self, inputs: Types) -> int | None:
        """`axis`, counted from the front."""
        return normal_axis(self.axis, len(operand(inputs, 0, "x0").shape))

    def elements_from(self, count: int) -> tuple[int, ...]:
        """Indices of all operands."""
        return tuple(range(count))

    def passes_through(self, inputs: Types) -> bool:
        """Whether it concatenates one operand only."""
        return len(inputs) == 1

    def transposed(self, perm: Sequence[int]) -> Self | str | None:
        """The operator along the axis that becomes `axis`."""
        return replace(self, axis=perm[self.axis % len(perm)])


@register
@dataclass(frozen=True)
class Identity(Movement):
    """x."""

    name: ClassVar[str] = "Identity"
    aligned: ClassVar[bool] = True
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = SameAs(0)
    rearranges: ClassVar[bool] = True

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The type of x."""
        return (operand(inputs, 0, "x"),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """x."""
        return (given(inputs, 0),)

    def passes_through(self, inputs: Types) -> bool:
        """Return True: the result is the operand."""
        return True

    def with_channels(self, count: int, inputs: Types) -> Self | None:
        """Return the operator itself, which works for any number of channels."""
        return self


@register
@dataclass(frozen=True)
class Shape(Operator):
    """The extents of x."""

    name: ClassVar[str] = "Shape"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = KeepFloat("Shape gives integers")

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """i64 of one element an axis."""
        return (TensorType(ElementType.INT64, (len(operand(inputs, 0, "x").shape),)),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.shape."""
        return (np.array(given(inputs, 0).shape, np.int64),)

    def evaluate_types(self, inputs: Types) -> tuple[Array, ...] | None:
        """The extents."""
        return (np.array(operand(inputs, 0, "x").shape, np.int64),)


@register
@dataclass(frozen=True)
class Cast(Operator):
    """x with elements of another type; `to` may be given by its name in IR text."""

    name: ClassVar[str] = "Cast"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = KeepFloat("Cast changes the element type")
    aligned: ClassVar[bool] = True
    takes_halves: ClassVar[bool] = True

    to: ElementType

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "to", ElementType(self.to))

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        return (TensorType(self.to, operand(inputs, 0, "x").shape),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.logic.cast: floats lose their fraction."""
        return (cast(given(inputs, 0), self.to),)

    @property
    def keeps_zeros(self) -> bool:
        """0 and false are 0 in every type."""
        return True

    def passes_through(self, inputs: Types) -> bool:
        """A cast to the type that x has."""
        return True
