"""The first elements along an axis, and where they are. https://onnx.ai/onnx/operators/ ArgMax, ArgMin, TopK

ONNX's TopK has two results; here they are two operators, TopK and TopKIndices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, ElementType, TensorType
from qglow.graph.axes import AxisEffect
from qglow.graph.operator import Operator, Policy, ReadsIntegers, SameAs, register, require
from qglow.graph.ops.rules import Arrays, Movement, Types, given, normal_axis, operand
from qglow.numerics.ranking import first_indices, first_values


class Places(Operator):
    """Base of operators whose int64 result says where elements are; integers rank as their reals do."""

    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = ReadsIntegers()

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Evaluate on the integers, which are in the order of the reals."""
        return self.evaluate(inputs)


@dataclass(frozen=True)
class FirstPlace(Places):
    """Base of ArgMax and ArgMin: the index of the first along `axis`, which is removed unless `keepdims`.

    The lowest index wins among equal elements, with `last` the highest; NaN comes before all numbers.
    """

    largest: ClassVar[bool]

    axis: int = 0
    keepdims: bool = True
    last: bool = False

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """i64, the shape of x without the axis, or with an extent of 1 there."""
        x = operand(inputs, 0, "x")
        axis = normal_axis(self.axis, len(x.shape))
        require(x.shape[axis] > 0, f"axis {axis} of {x} has no elements to choose from")
        kept = (1,) if self.keepdims else ()
        return (TensorType(ElementType.INT64, (*x.shape[:axis], *kept, *x.shape[axis + 1 :])),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.ranking."""
        places = first_indices(given(inputs, 0), self.axis, 1, self.largest, self.last)
        return (places if self.keepdims else np.squeeze(places, self.axis),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Axes that stay are apart. Along the other one, places behind all others are none of the first."""
        chosen = normal_axis(self.axis, len(operand(inputs, 0, "x").shape))
        if axis != chosen:
            return AxisEffect(axis - (not self.keepdims and axis > chosen))
        return None if self.last else AxisEffect(neutral=-math.inf if self.largest else math.inf)


@register
@dataclass(frozen=True)
class ArgMax(FirstPlace):
    """Places of the largest."""

    name: ClassVar[str] = "ArgMax"
    largest: ClassVar[bool] = True


@register
@dataclass(frozen=True)
class ArgMin(FirstPlace):
    """Places of the smallest."""

    name: ClassVar[str] = "ArgMin"
    largest: ClassVar[bool] = False


@register
@dataclass(frozen=True)
class TopK(Movement):
    """The `k` largest (else smallest) elements along `axis`, the first of the order first.

    Of equal ones the one with the lower index is first; NaN is before all numbers.
    """

    name: ClassVar[str] = "TopK"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = SameAs(0)

    axis: int
    k: int
    largest: bool = True

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """x with `k` elements along the axis."""
        return (_shortened(operand(inputs, 0, "x"), self.axis, self.k),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.ranking."""
        return (first_values(given(inputs, 0), self.axis, self.k, self.largest),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Axes that stay are apart."""
        return _beside(axis, self.axis, inputs)


@register
@dataclass(frozen=True)
class TopKIndices(Places):
    """Indices along `axis` of the elements of TopK."""

    name: ClassVar[str] = "TopKIndices"
    gives_ranks: ClassVar[bool] = True

    axis: int
    k: int
    largest: bool = True

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """i64, the shape of x with `k` elements along the axis."""
        x = _shortened(operand(inputs, 0, "x"), self.axis, self.k)
        return (TensorType(ElementType.INT64, x.shape),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.ranking."""
        return (first_indices(given(inputs, 0), self.axis, self.k, self.largest),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Axes that stay are apart."""
        return _beside(axis, self.axis, inputs)


def _beside(axis: int, chosen: int, inputs: Types) -> AxisEffect | None:
    """The effect along an axis; None along the one that elements are chosen from."""
    return None if axis == normal_axis(chosen, len(operand(inputs, 0, "x").shape)) else AxisEffect(axis)


def _shortened(x: TensorType, axis: int, k: int) -> TensorType:
    axis = normal_axis(axis, len(x.shape))
    require(0 <= k <= x.shape[axis], f"the first {k} of {x.shape[axis]} elements along axis {axis} of {x}")
    return x.with_shape((*x.shape[:axis], k, *x.shape[axis + 1 :]))
