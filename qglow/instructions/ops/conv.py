"""Convolution: images NHWC, filters O, KH, KW, I with I = channels / group.

Definition: https://onnx.ai/onnx/operators/onnx__Conv.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import ElementType, Shape
from qglow.instructions.operation import (
    Arrays,
    Operand,
    Types,
    out,
    read,
    register,
    require,
    scratch,
)
from qglow.instructions.ops.rules import (
    BoundedOperation,
    parameters_of,
    require_float,
    require_float_or_int8,
    require_int8,
    require_rank,
    require_reals,
    require_shape,
    require_window,
    window_count,
)
from qglow.numerics.conv import conv_accumulate, conv_float
from qglow.numerics.elementwise import clip
from qglow.numerics.half import widen
from qglow.numerics.windows import Pads, Pair


@register
@dataclass(frozen=True)
class Convolution(BoundedOperation):
    """Two-dimensional convolution.

    float: dest = clamp(conv(src, filter) + bias), all float32, no multiplier; the filter may be stored as
    float16 or bfloat16.
    int8: int32 accumulation of (src - zero point) * filter plus the int32 bias at scale
    s_x * s_w, then `multiplier` per output channel: (s_x * s_w) / s_y for an int8 dest,
    s_x * s_w for a float one. An int32 dest without a scale takes the sums as they are, without
    multiplier and bounds. The filter's type carries no quantization.
    """

    opcode: ClassVar[str] = "convolution"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(strided=True),
        read(strided=True),
        read("filter"),
        read("bias", optional=True),
        read("multiplier", optional=True),
        scratch(),
    )
    has_epilogue: ClassVar[bool] = True

    strides: Shape = (1, 1)
    pads: Shape = (0, 0, 0, 0)
    dilations: Shape = (1, 1)
    group: int = 1

    def verify(self, types: Types) -> None:
        """Shapes agree with the window, and operand types are those of one of the forms."""
        self.verify_bounds(types["dest"])
        require_rank(types, 4, "dest", "src", "filter")
        require_window(self.strides, self.pads, self.dilations)
        self._verify_shapes(types)
        verify_accumulation(types, types["filter"].shape[0])

    def output_shape(self, src: Shape, filters: Shape) -> Shape:
        """Shape of dest for these shapes of src and filter."""
        height, width = (
            window_count(
                src[1 + i], filters[1 + i], self.strides[i], self.pads[i], self.pads[i + 2], self.dilations[i]
            )
            for i in (0, 1)
        )
        return (src[0], height, width, filters[0])

    def _verify_shapes(self, types: Types) -> None:
        src, filters = types["src"].shape, types["filter"].shape
        require(self.group >= 1, f"group {self.group} is not positive")
        require(src[3] == filters[3] * self.group, f"{src[3]} channels are not {self.group} x {filters[3]}")
        require(filters[0] % self.group == 0, f"{filters[0]} filters do not divide by group {self.group}")
        wanted = self.output_shape(src, filters)
        require(min(wanted[1:3]) >= 1, f"the window does not fit into {src[1:3]}")
        require_shape(types, "dest", wanted, "window positions and filters")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.conv, which takes NCHW and OIHW."""
        src = arrays["src"].transpose(0, 3, 1, 2)
        filters = widen(arrays["filter"]).transpose(0, 3, 1, 2)
        window = (self._pair(self.strides), self._pads(), self._pair(self.dilations), self.group)
        bias = arrays.get("bias")
        if types["src"].is_float:
            result = clip(conv_float(src, filters, bias, *window), self.lo, self.hi)
        else:
            zero = parameters_of(types["src"]).zero_point
            acc = conv_accumulate(src, zero, filters, 0, bias, *window)
            result = acc
            if "multiplier" in arrays:
                result = self.finish(acc, arrays["multiplier"].reshape(-1, 1, 1), types["dest"])
        arrays["dest"][...] = result.transpose(0, 2, 3, 1)

    def _pads(self) -> Pads:
        top, left, bottom, right = self.pads
        return top, left, bottom, right

    @staticmethod
    def _pair(values: Shape) -> Pair:
        return values[0], values[1]


def verify_accumulation(types: Types, channels: int) -> None:
    """Types of an operation that multiplies and accumulates: src, filter, bias, multiplier, dest."""
    if types["src"].is_float:
        require_float(types, "dest", "bias")
        require_reals(types, "filter")
        require("multiplier" not in types, "a float operation has no multiplier")
    else:
        require_int8(types, "src")
        weights = types["filter"]
        plain = weights.element is ElementType.INT8 and weights.quantization is None
        require(plain, f"filter is {weights}, not plain int8")
        require("bias" in types and types["bias"].element is ElementType.INT32, "an int32 bias is needed")
        sums = types["dest"].element is ElementType.INT32
        require(("multiplier" in types) != sums, "a multiplier is needed, but for sums as they are")
        require_float(types, "multiplier")
        if not sums:
            require_float_or_int8(types, "dest")
    require_shape(types, "bias", (channels,), "one a channel")
    require_shape(types, "multiplier", (channels,), "one a channel")
