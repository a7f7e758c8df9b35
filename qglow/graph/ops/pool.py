"""Pooling of images. https://onnx.ai/onnx/operators/onnx__MaxPool.html, onnx__AveragePool.html"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from qglow.core.types import Array, Shape, TensorType, float_type
from qglow.graph.axes import AxisEffect
from qglow.graph.operator import Operator, OperatorTypeError, Policy, Rescaled, SameAs, register, require
from qglow.graph.ops.reduce import ReduceMax, ReduceMean
from qglow.graph.ops.rules import Arrays, Movement, Types, float_operand, given, operand, parameters_of
from qglow.graph.traits import ImageBorder, SlidingWindow
from qglow.numerics.pool import (
    average_pool_float,
    average_pool_int8,
    max_pool,
    pool_output_shape,
    window_counts,
)
from qglow.numerics.windows import Pads, Pair

_LOWEST = float(np.finfo(np.float32).min)


class Pooling(Operator):
    """Base of operators that work on each plane of an image [N, C, H, W] by itself."""

    operands: ClassVar[tuple[str, ...]] = ("x",)
    exact_in_onnxruntime: ClassVar[bool] = True

    def scales_along(self, axis: int) -> bool:
        """The channels."""
        return axis == 1

    def with_channels(self, count: int, inputs: Types) -> Self | None:
        """Return the operator itself, which works for any number of channels."""
        return self

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Images and channels are apart."""
        return AxisEffect(axis) if axis < 2 else None


class WindowPooling(Pooling):
    """Base of poolings with a window that slides; `pads` is (top, left, bottom, right)."""

    takes_slices: ClassVar[bool] = True
    kernel: Pair
    strides: Pair
    pads: Pads
    dilations: Pair
    ceil_mode: bool

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """[N, C, OH, OW]."""
        x = float_operand(inputs, 0, "x", 4)
        window = (self.kernel, self.strides, self.pads, self.dilations, self.ceil_mode)
        return (float_type(*_pooled(x.shape, *window)),)

    def window(self, inputs: Types) -> SlidingWindow:
        """The fields."""
        return SlidingWindow(self.kernel, self.strides, self.pads, self.dilations)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Images and channels are apart; windows that end behind the edge see what has no effect there."""
        if axis < 2 or self.ceil_mode:
            return super().axis_effect(index, axis, inputs)
        added, stride = self.window(inputs).places(axis)
        if not self.pads[axis]:
            return AxisEffect(axis, added=added, stride=stride)
        outside = self._outside
        return None if outside is None else AxisEffect(axis, outside, added=added, stride=stride)

    def reduction_of_image(self, inputs: Types) -> ReduceMean | ReduceMax | None:
        """The reduction over both axes, where the window is the whole image."""
        window, shape = self.window(inputs), operand(inputs, 0, "x").shape
        if window.kernel != shape[2:] or any(window.pads) or window.dilations != (1, 1):
            return None
        return ReduceMax((2, 3)) if self.moves_elements else ReduceMean((2, 3))

    @property
    def _outside(self) -> float | None:
        """The number that padding is like; None where windows over the edge count fewer elements."""
        return None

    def passes_through(self, inputs: Types) -> bool:
        """A window of one pixel at every pixel."""
        return (*self.kernel, *self.strides) == (1, 1, 1, 1) and not any(self.pads)

    def windows_problem(self, before: Self, border: ImageBorder, inputs: Types) -> str | None:
        """Reason why this pool has other windows on the image than `before` on the image with its border."""
        shape = operand(inputs, 0, "x").shape
        top, left, bottom, right = border.pads
        bordered = (*shape[:2], shape[2] + top + bottom, shape[3] + left + right)
        try:
            (kind,), (wanted,) = self.infer(inputs), before.infer([float_type(*bordered)])
        except OperatorTypeError as error:
            return str(error)
        if kind.shape != wanted.shape:
            return "windows that begin beyond the image are left out in ceil mode"
        return None


@register
@dataclass(frozen=True)
class MaxPool(WindowPooling, Movement):
    """Largest element of every window; padding never wins."""

    name: ClassVar[str] = "MaxPool"
    policy: ClassVar[Policy] = SameAs(0)

    kernel: Pair
    strides: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    ceil_mode: bool = False

    @property
    def _outside(self) -> float:
        return -math.inf

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.pool, float and int8 alike."""
        x = given(inputs, 0)
        return (max_pool(x, self.kernel, self.strides, self.pads, self.dilations, self.ceil_mode),)

    def elements_from(self, count: int) -> tuple[int, ...]:
        """x, without padding: windows that see nothing else give -inf."""
        return () if any(self.pads) else (0,)

    def with_border(self, border: ImageBorder, inputs: Types) -> Self | str | None:
        """Padding in place of numbers that no element of the image is below."""
        if border.value > max(_LOWEST, border.least):
            return (
                f"{border.source} adds {border.value:g}, and %{border.image} may be less "
                f"(from {border.least:g})"
            )
        padded = replace(self, pads=border.around(self.pads))
        problem = padded.windows_problem(self, border, inputs)
        if problem is not None:
            return problem
        shape = operand(inputs, 0, "x").shape
        window = (padded.kernel, padded.strides, padded.pads, padded.ceil_mode)
        if not np.all(window_counts(shape, *window, dilations=padded.dilations)):
            return f"windows that see only {border.source} would give nothing"
        return padded


@register
@dataclass(frozen=True)
class AveragePool(WindowPooling):
    """Mean of every window over the positions that count; see the ONNX operator."""

    name: ClassVar[str] = "AveragePool"
    policy: ClassVar[Policy] = Rescaled()

    kernel: Pair
    strides: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    ceil_mode: bool = False
    count_include_pad: bool = False
    dilations: Pair = (1, 1)

    @property
    def _outside(self) -> float | None:
        return 0.0 if self.count_include_pad else None

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.pool."""
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

    def summed_elements(self, inputs: Types) -> int:
        """All in a window."""
        return math.prod(self.kernel)

    def with_border(self, border: ImageBorder, inputs: Types) -> Self | str | None:
        """Zeros become padding that counts."""
        if border.value != 0.0:
            return f"{border.source} adds {border.value:g}, not zeros"
        if any(self.pads) and not self.count_include_pad:
            return f"its own padding does not count, that of {border.source} does"
        padded = replace(self, count_include_pad=True, pads=border.around(self.pads))
        return padded.windows_problem(self, border, inputs) or padded


@register
@dataclass(frozen=True)
class GlobalAveragePool(Pooling):
    """Mean of every channel of an image: [N, C, 1, 1]."""

    name: ClassVar[str] = "GlobalAveragePool"
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

    def summed_elements(self, inputs: Types) -> int:
        """All pixels."""
        return math.prod(operand(inputs, 0, "x").shape[2:])

    def passes_through(self, inputs: Types) -> bool:
        """A mean of one pixel: the types would differ else."""
        return True


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
