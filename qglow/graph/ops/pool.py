"""Pooling of images. https://onnx.ai/onnx/operators/onnx__MaxPool.html, onnx__AveragePool.html"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import Array, Shape, TensorType, float_type
from qglow.graph.operator import Operator, OperatorTypeError, Policy, Rescaled, SameAs, register, require
from qglow.graph.ops.rules import Arrays, Movement, Types, float_operand, given, parameters_of
from qglow.numerics.pool import average_pool_float, average_pool_int8, max_pool, pool_output_shape

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]


@register
@dataclass(frozen=True)
class MaxPool(Movement):
    """Largest element of every window; padding never wins. `pads` is (top, left, bottom, right)."""

    name: ClassVar[str] = "MaxPool"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = SameAs(0)

    kernel: Pair
    strides: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    ceil_mode: bool = False

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """[N, C, OH, OW]."""
        x = float_operand(inputs, 0, "x", 4)
        window = (self.kernel, self.strides, self.pads, self.dilations, self.ceil_mode)
        return (float_type(*_pooled(x.shape, *window)),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """numerics.pool, float and int8 alike."""
        x = given(inputs, 0)
        return (max_pool(x, self.kernel, self.strides, self.pads, self.dilations, self.ceil_mode),)


@register
@dataclass(frozen=True)
class AveragePool(Operator):
    """Mean of every window over the positions that count; see the ONNX operator."""

    name: ClassVar[str] = "AveragePool"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = Rescaled()

    kernel: Pair
    strides: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    ceil_mode: bool = False
    count_include_pad: bool = False
    dilations: Pair = (1, 1)

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """[N, C, OH, OW]."""
        x = float_operand(inputs, 0, "x", 4)
        window = (self.kernel, self.strides, self.pads, self.dilations, self.ceil_mode)
        return (float_type(*_pooled(x.shape, *window)),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """numerics.pool."""
        window = (self.kernel, self.strides, self.pads, self.ceil_mode, self.count_include_pad)
        return (average_pool_float(given(inputs, 0), *window, dilations=self.dilations),)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Rule 6 of the numeric contract."""
        x_quant, y_quant = parameters_of(input_types, 0), output_types[0].quantization
        if x_quant is None or y_quant is None:
            return super().evaluate_quantized(inputs, input_types, output_types)
        window = (self.kernel, self.strides, self.pads, self.ceil_mode, self.count_include_pad)
        return (average_pool_int8(given(inputs, 0), x_quant, y_quant, *window, dilations=self.dilations),)


@register
@dataclass(frozen=True)
class GlobalAveragePool(Operator):
    """Mean of every channel of an image: [N, C, 1, 1]."""

    name: ClassVar[str] = "GlobalAveragePool"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = Rescaled()

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """[N, C, 1, 1]."""
        x = float_operand(inputs, 0, "x", 4)
        require(min(x.shape[2:]) >= 1, f"operand x is {x}, it has no pixels")
        return (float_type(*x.shape[:2], 1, 1),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """AveragePool with a window of the whole image."""
        return _whole_image(given(inputs, 0).shape).evaluate(inputs)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """AveragePool with a window of the whole image."""
        return _whole_image(given(inputs, 0).shape).evaluate_quantized(inputs, input_types, output_types)


def _whole_image(shape: Shape) -> AveragePool:
    return AveragePool(kernel=(int(shape[2]), int(shape[3])))


def _pooled(shape: Shape, kernel: Pair, strides: Pair, pads: Pads, dilations: Pair, ceil_mode: bool) -> Shape:
    require(min(kernel + strides + dilations) >= 1, "kernel, strides and dilations must be positive")
    require(min(pads) >= 0, f"pads {list(pads)} are negative")
    for axis in (0, 1):
        reach = dilations[axis] * (kernel[axis] - 1)
        require(max(pads[axis], pads[axis + 2]) <= reach, f"pads {list(pads)} are as large as the window")
    try:
        return pool_output_shape(shape, kernel, strides, pads, dilations, ceil_mode)
    except ValueError as error:
        raise OperatorTypeError(str(error)) from error
