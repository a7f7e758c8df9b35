"""Maximum and average over sliding windows of NHWC images. Global pooling has a window of full size.

In ceil mode a last window may hang over the padded image; what hangs over never counts.

Definitions: https://onnx.ai/onnx/operators/onnx__MaxPool.html, onnx__AveragePool.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import ElementType, Shape
from qglow.instructions.operation import (
    Arrays,
    Operand,
    Operation,
    TypeErrorInOperation,
    Types,
    out,
    read,
    register,
    require,
)
from qglow.instructions.ops.rules import (
    parameters_of,
    require_activation,
    require_one_kind,
    require_rank,
    require_same_elements,
    require_shape,
    require_window,
)
from qglow.numerics.pool import MOST_WIDE_TAPS, average_pool_float, average_pool_int8, max_pool
from qglow.numerics.windows import Pads, Pair, output_extents


@dataclass(frozen=True)
class _Window(Operation):
    """A sliding window without weights."""

    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))

    kernel: Shape
    strides: Shape = (1, 1)
    pads: Shape = (0, 0, 0, 0)
    dilations: Shape = (1, 1)
    ceil_mode: bool = False

    def verify(self, types: Types) -> None:
        """Shapes agree with the window."""
        require_activation(types, "dest", "src")
        require_rank(types, 4, "dest", "src")
        require_window(self.strides, self.pads, self.dilations)
        require(len(self.kernel) == 2 and min(self.kernel) >= 1, f"kernel {self.kernel} is not two sizes")
        for i in (0, 1):
            inside = max(self.pads[i], self.pads[i + 2]) <= self.dilations[i] * (self.kernel[i] - 1)
            require(inside, "a window lies wholly in the padding")
        require_shape(types, "dest", self.output_shape(types["src"].shape), "window positions")

    def output_shape(self, src: Shape) -> Shape:
        """Shape of dest for this shape of src."""
        dilations = _pair(self.dilations)
        try:
            height, width = output_extents((src[1], src[2]), *self._window(), dilations, self.ceil_mode)
        except ValueError as error:
            raise TypeErrorInOperation(str(error)) from error
        return (src[0], height, width, src[3])

    def _pads(self) -> Pads:
        top, left, bottom, right = self.pads
        return top, left, bottom, right

    def _window(self) -> tuple[Pair, Pair, Pads]:
        return _pair(self.kernel), _pair(self.strides), self._pads()


def _pair(values: Shape) -> Pair:
    return values[0], values[1]


@register
@dataclass(frozen=True)
class MaxPool(_Window):
    """Largest element of every window; dest and src have the same elements."""

    opcode: ClassVar[str] = "maxpool"

    def verify(self, types: Types) -> None:
        """Verify the window, and that src and dest have the same elements."""
        super().verify(types)
        require_same_elements(types, "src", "dest")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.pool, which takes NCHW."""
        src = arrays["src"].transpose(0, 3, 1, 2)
        result = max_pool(src, *self._window(), _pair(self.dilations), self.ceil_mode)
        arrays["dest"][...] = result.transpose(0, 2, 3, 1)


@register
@dataclass(frozen=True)
class AveragePool(_Window):
    """Mean of every window; operands of integers have parameters of their own.

    Padding counts only with `count_include_pad`.
    """

    opcode: ClassVar[str] = "averagepool"

    count_include_pad: bool = False

    def verify(self, types: Types) -> None:
        """Verify the window, and that both are float32 or both integers whose sums int32 holds."""
        super().verify(types)
        require_one_kind(types, "src", "dest")
        wide = types["src"].element is ElementType.INT16
        taps = self.kernel[0] * self.kernel[1]
        require(not wide or taps <= MOST_WIDE_TAPS, f"sums of {taps} int16 elements may be beyond int32")

    def ends_epilogue(self, types: Types) -> bool:
        """Whether the pool is global: the window is the whole image and there are no pads."""
        extents = types["src"].shape[1:3]
        return not any(self.pads) and self.kernel == extents and types["dest"].shape[1:3] == (1, 1)

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.pool, which takes NCHW."""
        src = arrays["src"].transpose(0, 3, 1, 2)
        window = (*self._window(), self.ceil_mode, self.count_include_pad)
        dilations = _pair(self.dilations)
        if types["src"].is_float:
            result = average_pool_float(src, *window, dilations=dilations)
        else:
            x, y = parameters_of(types["src"]), parameters_of(types["dest"])
            result = average_pool_int8(src, x, y, *window, dilations=dilations)
        arrays["dest"][...] = result.transpose(0, 2, 3, 1)
