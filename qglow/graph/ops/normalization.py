"""Normalization by stored statistics. https://onnx.ai/onnx/operators/onnx__BatchNormalization.html"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, TensorType
from qglow.graph.operator import KeepFloat, Operator, Policy, Rescaled, register, require
from qglow.graph.ops.rules import Arrays, Types, float_operand, given, parameters_of, vector_operand
from qglow.numerics.affine import affine_float, affine_int8, fold_statistics
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

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """One float32 multiplication and addition with statistics folded in float64."""
        scale, bias, mean, variance = (given(inputs, index) for index in range(1, 5))
        r, t = fold_statistics(scale, bias, mean, variance, self.epsilon)
        return (affine_float(given(inputs, 0), r, t),)


@register
@dataclass(frozen=True)
class Affine(Operator):
    """x * scale + shift along axis 1, scale and shift [C], within the real bounds `lo` and `hi`.

    A BatchNormalization that folds into no neighbour. scale and shift stay float in its int8 form.
    """

    name: ClassVar[str] = "Affine"
    operands: ClassVar[tuple[str, ...]] = ("x", "scale", "shift")
    policy: ClassVar[Policy] = Rescaled()
    float_operands: ClassVar[tuple[str, ...]] = ("scale", "shift")

    lo: float = -math.inf
    hi: float = math.inf

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        return (_channelwise(inputs, self.operands[1:]),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """numerics.affine."""
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


def _channelwise(inputs: Types, vectors: Sequence[str]) -> TensorType:
    x = float_operand(inputs, 0, "x")
    require(len(x.shape) >= 2, f"operand x is {x}, it has no channel axis")
    for index, name in enumerate(vectors, start=1):
        vector_operand(inputs, index, name, x.shape[1])
    return x
