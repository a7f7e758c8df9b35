"""Normalization. https://onnx.ai/onnx/operators/ BatchNormalization, LayerNormalization,
InstanceNormalization, LRN
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from qglow.core.types import Array, TensorType
from qglow.graph.axes import AxisEffect
from qglow.graph.operator import KeepFloat, Operator, Policy, Rescaled, register, require
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.rules import (
    Arrays,
    Bounded,
    Types,
    broadcast_shape,
    float_operand,
    given,
    normal_axis,
    operand,
    optional,
    parameters_of,
    vector_operand,
)
from qglow.numerics.affine import affine_float, affine_int8, fold_statistics
from qglow.numerics.normalization import instance_normalization, layer_normalization, local_response
from qglow.numerics.requantize import quantized_bounds


@register
@dataclass(frozen=True)
class BatchNormalization(Operator):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias along axis 1, each vector [C]."""

    name: ClassVar[str] = "BatchNormalization"
    operands: ClassVar[tuple[str, ...]] = ("x", "scale", "bias", "mean", "variance")
    policy: ClassVar[Policy] = KeepFloat("BatchNormalization whose statistics are not constant")

    epsilon: float = float(np.float32(1e-5))

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        return (_channelwise(inputs, self.operands[1:]),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The same axis, if it is not that of the channels."""
        return _beside_channels(index, axis)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """One float32 multiplication and addition with statistics folded in float64."""
        scale, bias, mean, variance = (given(inputs, index) for index in range(1, 5))
        r, t = fold_statistics(scale, bias, mean, variance, self.epsilon)
        return (affine_float(given(inputs, 0), r, t),)


@register
@dataclass(frozen=True)
class Affine(Bounded):
    """x * scale + shift along axis 1, scale and shift [C], within the real bounds `lo` and `hi`.

    A BatchNormalization that folds into no neighbour. scale and shift stay float in its int8 form.
    """

    name: ClassVar[str] = "Affine"
    operands: ClassVar[tuple[str, ...]] = ("x", "scale", "shift")
    policy: ClassVar[Policy] = Rescaled()
    plain_operands: ClassVar[tuple[str, ...]] = ("scale", "shift")

    lo: float = -math.inf
    hi: float = math.inf

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        return (_channelwise(inputs, self.operands[1:]),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.affine."""
        x, scale, shift = (given(inputs, index) for index in range(3))
        return (affine_float(x, scale, shift, lo=self.lo, hi=self.hi),)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Rule 6 of the numeric contract."""
        x_quant, y_quant = parameters_of(input_types, 0), output_types[0].quantization
        if x_quant is None or y_quant is None:
            return super().evaluate_quantized(inputs, input_types, output_types)
        x, scale, shift = (given(inputs, index) for index in range(3))
        bounds = quantized_bounds(self.lo, self.hi, y_quant)
        return (affine_int8(x, x_quant, scale, shift, y_quant, *bounds),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The same axis, if it is not that of the channels."""
        return _beside_channels(index, axis)

    @property
    def factor_and_summand(self) -> tuple[Mul, Add]:
        """Arithmetic, whose bounds are those of the sum."""
        return Mul(), Add(lo=self.lo, hi=self.hi)

    def transposed(self, perm: Sequence[int]) -> Self | str | None:
        """The same, where channels stay along axis 1."""
        return self if perm[1] == 1 else "moves the channels"

    def constants_axis(self, inputs: Types) -> int | None:
        """The channels."""
        return 1


OWN_STATISTICS = "its mean and variance are computed from each input, in float"


@register
@dataclass(frozen=True)
class LayerNormalization(Operator):
    """x standardized over the axes from `axis` on, times scale, plus bias; both broadcast to x."""

    name: ClassVar[str] = "LayerNormalization"
    operands: ClassVar[tuple[str, ...]] = ("x", "scale", "bias?")
    policy: ClassVar[Policy] = KeepFloat(OWN_STATISTICS)
    standardizes: ClassVar[bool] = True

    axis: int = -1
    epsilon: float = float(np.float32(1e-5))

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        x = float_operand(inputs, 0, "x")
        normal_axis(self.axis, len(x.shape))
        for index, name in ((1, "scale"), (2, "bias")):
            if index == 2 and (len(inputs) < 3 or inputs[2] is None):
                continue
            vector = float_operand(inputs, index, name)
            fits = broadcast_shape(x.shape, vector.shape) == x.shape
            require(fits, f"operand {name} is {vector}, which does not broadcast to {x}")
        return (x,)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.normalization."""
        x, scale, bias = given(inputs, 0), given(inputs, 1), optional(inputs, 2)
        return (layer_normalization(x, scale, bias, self.axis, self.epsilon),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The same axis, if it is in front of those that are standardized."""
        x = operand(inputs, 0, "x").shape
        return AxisEffect(axis) if index == 0 and axis < normal_axis(self.axis, len(x)) else None

    def constants_axis(self, inputs: Types) -> int | None:
        """The last axis, where it alone is standardized and scale and bias are vectors."""
        last = len(operand(inputs, 0, "x").shape) - 1
        vectors = all(kind is None or len(kind.shape) == 1 for kind in inputs[1:])
        return last if vectors and self.axis % (last + 1) == last else None


@register
@dataclass(frozen=True)
class InstanceNormalization(Operator):
    """Every channel of every image standardized, times scale [C], plus bias [C]."""

    name: ClassVar[str] = "InstanceNormalization"
    operands: ClassVar[tuple[str, ...]] = ("x", "scale", "bias")
    policy: ClassVar[Policy] = KeepFloat(OWN_STATISTICS)
    standardizes: ClassVar[bool] = True

    epsilon: float = float(np.float32(1e-5))

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        return (_channelwise(inputs, self.operands[1:]),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Images are apart."""
        return AxisEffect(0) if (index, axis) == (0, 0) else None

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.normalization."""
        return (instance_normalization(given(inputs, 0), given(inputs, 1), given(inputs, 2), self.epsilon),)


@register
@dataclass(frozen=True)
class LRN(Operator):
    """x / (bias + alpha * mean of the squares of `size` neighbouring channels)^beta."""

    name: ClassVar[str] = "LRN"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = KeepFloat("it divides by a power of sums of squares, which int8 cannot hold")

    size: int
    alpha: float = float(np.float32(1e-4))
    beta: float = 0.75
    bias: float = 1.0

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        require(self.size >= 1, f"size {self.size} is not positive")
        return (_channelwise(inputs, ()),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The same axis, if it is not that of the channels."""
        return _beside_channels(index, axis)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.normalization."""
        return (local_response(given(inputs, 0), self.size, self.alpha, self.beta, self.bias),)


def _beside_channels(index: int, axis: int) -> AxisEffect | None:
    return AxisEffect(axis) if index == 0 and axis != 1 else None


def _channelwise(inputs: Types, vectors: Sequence[str]) -> TensorType:
    x = float_operand(inputs, 0, "x")
    require(len(x.shape) >= 2, f"operand x is {x}, it has no channel axis")
    for index, name in enumerate(vectors, start=1):
        vector_operand(inputs, index, name, x.shape[1])
    return x
