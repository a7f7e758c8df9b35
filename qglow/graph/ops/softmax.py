"""Softmax. https://onnx.ai/onnx/operators/onnx__Softmax.html"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import Array, TensorType
from qglow.graph.operator import Fixed, KeepFloat, Operator, Policy, register
from qglow.graph.ops.rules import Arrays, Types, float_operand, given, normal_axis
from qglow.numerics.softmax import softmax_float


@register
@dataclass(frozen=True)
class Softmax(Operator):
    """e^x / sum of e^x along one axis."""

    name: ClassVar[str] = "Softmax"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = KeepFloat("Softmax is computed in float: int8 would lose small probabilities")
    fixed: ClassVar[Fixed | None] = Fixed(1 / 256, -128)

    axis: int = -1

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        x = float_operand(inputs, 0, "x")
        normal_axis(self.axis, len(x.shape))
        return (x,)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """numerics.softmax."""
        return (softmax_float(given(inputs, 0), self.axis),)
