"""2-D convolution. https://onnx.ai/onnx/operators/onnx__Conv.html"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from qglow.core.types import Array, TensorType, float_type
from qglow.graph.axes import AxisEffect
from qglow.graph.operator import Accumulate, OperatorTypeError, Policy, register, require
from qglow.graph.ops.rules import (
    Arrays,
    Bounded,
    Types,
    bias_operand,
    float_operand,
    given,
    operand,
    optional,
    parameters_of,
)
from qglow.graph.traits import Filters, ImageBorder, SlidingWindow
from qglow.numerics.conv import conv_float, conv_int8, output_shape
from qglow.numerics.elementwise import clip
from qglow.numerics.requantize import quantized_bounds


@register
@dataclass(frozen=True)
class Conv(Bounded):
    """Cross-correlation of x [N, C, H, W] with w [O, C/group, KH, KW], plus bias [O].

    `pads` is (top, left, bottom, right). `lo` and `hi` bound the real result: a fused Relu or
    Clip. Its int8 form takes int8 x and w, an int32 bias at scale s_x * s_w, and gives int8 or
    float.
    """

    name: ClassVar[str] = "Conv"
    operands: ClassVar[tuple[str, ...]] = ("x", "w", "bias?")
    policy: ClassVar[Policy] = Accumulate()
    takes_slices: ClassVar[bool] = True
    exact_in_onnxruntime: ClassVar[bool] = True

    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    group: int = 1
    lo: float = -math.inf
    hi: float = math.inf

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """[N, O, OH, OW]."""
        x, w = float_operand(inputs, 0, "x", 4), float_operand(inputs, 1, "w", 4)
        bias_operand(inputs, 2, w.shape[0])
        require(self.group >= 1, f"group {self.group} is not positive")
        require(min(self.strides + self.dilations) >= 1, "strides and dilations must be positive")
        require(min(self.pads) >= 0, f"pads {list(self.pads)} are negative")
        try:
            shape = output_shape(x.shape, w.shape, self.strides, self.pads, self.dilations, self.group)
        except ValueError as error:
            raise OperatorTypeError(str(error)) from error
        return (float_type(*shape),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.conv, then the bounds."""
        x, w, bias = given(inputs, 0), given(inputs, 1), optional(inputs, 2)
        result = conv_float(x, w, bias, self.strides, self.pads, self.dilations, self.group)
        return (clip(result, self.lo, self.hi),)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Rules 3 and 5 of the numeric contract."""
        x_quant, w_quant = parameters_of(input_types, 0), parameters_of(input_types, 1)
        if x_quant is None or w_quant is None:
            return super().evaluate_quantized(inputs, input_types, output_types)
        y_quant = output_types[0].quantization
        lo, hi = (self.lo, self.hi) if y_quant is None else quantized_bounds(self.lo, self.hi, y_quant)
        x, w, bias = given(inputs, 0), given(inputs, 1), optional(inputs, 2)
        window = (self.strides, self.pads, self.dilations, self.group)
        return (conv_int8(x, x_quant, w, w_quant, bias, y_quant, *window, lo, hi),)

    @property
    def filters(self) -> Filters:
        """Weights [O, I / group, KH, KW]."""
        return Filters(outputs=0, inputs=1, groups=self.group)

    def window(self, inputs: Types) -> SlidingWindow:
        """Window with the size of the weights' last two axes."""
        kernel = operand(inputs, 1, "w").shape
        return SlidingWindow((kernel[2], kernel[3]), self.strides, self.pads, self.dilations)

    def with_border(self, border: ImageBorder, inputs: Types) -> Self | str | None:
        """Zeros become padding, as long as it is smaller than the window."""
        if border.value != 0.0:
            return f"{border.source} adds {border.value:g}, not zeros"
        padded = replace(self, pads=border.around(self.pads))
        if not padded.window(inputs).sees_image():
            return f"padding {list(padded.pads)} would be as large as the window"
        return padded

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Images are apart; windows that end behind the edge of one see zeros there."""
        if index or axis == 1:
            return None
        if axis == 0:
            return AxisEffect(0)
        added, stride = self.window(inputs).places(axis)
        return AxisEffect(axis, neutral=0.0 if self.pads[axis] else None, added=added, stride=stride)

    def constants_axis(self, inputs: Types) -> int | None:
        """The output channels."""
        return 1

    def with_channels(self, count: int, inputs: Types) -> Self | None:
        """The weights alone say how many channels there are."""
        return self


def convolution(window: SlidingWindow, group: int = 1) -> Conv:
    """The operator that has these geometry and groups; weights have the kernel."""
    return Conv(strides=window.strides, pads=window.pads, dilations=window.dilations, group=group)
