"""Softmax along one axis, or its logarithm, float32.

Definition: https://onnx.ai/onnx/operators/onnx__Softmax.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import require_float, require_shape
from qglow.numerics.softmax import log_softmax_float, softmax_float


@register
@dataclass(frozen=True)
class Softmax(Operation):
    """dest = e^(src - max) / sum of the same, along `axis` of the buffer; or the logarithm of that.

    masked_to_zero: rows that would be NaN, as those of minus infinity alone, are zeros.
    """

    opcode: ClassVar[str] = "softmax"
    signature: ClassVar[tuple[Operand, ...]] = (out(), read())
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "src"),)

    axis: int = -1
    logarithm: bool = False
    masked_to_zero: bool = False

    def verify(self, types: Types) -> None:
        """Floats of one shape that has the axis."""
        require_float(types, "dest", "src")
        shape = types["src"].shape
        require_shape(types, "dest", shape, "that of src")
        require(not (self.logarithm and self.masked_to_zero), "zeros for masked rows have no logarithm")
        require(-len(shape) <= self.axis < len(shape), f"axis {self.axis} is not one of {len(shape)}")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.softmax."""
        if self.logarithm:
            arrays["dest"][...] = log_softmax_float(arrays["src"], self.axis)
        else:
            arrays["dest"][...] = softmax_float(arrays["src"], self.axis, self.masked_to_zero)
