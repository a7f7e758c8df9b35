"""Resampling along one axis.

Definition: https://onnx.ai/onnx/operators/onnx__Resize.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import ElementType
from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import require_activation, require_float, require_shape
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.numerics.resize import Taps, interpolate


@register
@dataclass(frozen=True)
class Interpolate(Operation):
    """Index i of dest's `axis` is offsets[i] + the sum of weights[i, k] * src at indices[i, k].

    Products are float32, added one after the other in ascending k, the offset last. An int8 src
    is dequantized before and an int8 dest quantized after. Indices are known and in range.
    """

    opcode: ClassVar[str] = "interpolate"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(strided=True),
        read(strided=True),
        read("indices"),
        read("weights"),
        read("offsets", optional=True),
    )

    axis: int

    def verify(self, types: Types) -> None:
        """One row of indices and weights for every element of dest along the axis."""
        require_activation(types, "dest", "src")
        require_float(types, "weights", "offsets")
        shape, indices = types["src"].shape, types["indices"]
        require(0 <= self.axis < len(shape), f"axis {self.axis} is not one of {len(shape)}")
        rows = indices.element is ElementType.INT32 and len(indices.shape) == 2 and indices.shape[1] > 0
        require(rows, f"indices is {indices}, not rows of i32")
        require_shape(types, "weights", indices.shape, "that of indices")
        require_shape(types, "offsets", indices.shape[:1], "one a row of indices")
        wanted = (*shape[: self.axis], indices.shape[0], *shape[self.axis + 1 :])
        require_shape(types, "dest", wanted, "src with the axis resampled")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.resize."""
        src, source, target = arrays["src"], types["src"].quantization, types["dest"].quantization
        taps = Taps(arrays["indices"], arrays["weights"], arrays.get("offsets"))
        real = src if source is None else dequantize_by(src, source)
        result = interpolate(real, taps, self.axis)
        arrays["dest"][...] = result if target is None else quantize_by(result, target)
