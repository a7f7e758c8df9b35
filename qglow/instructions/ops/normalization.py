"""Normalization by the elements nearby, float32.

Definition: https://onnx.ai/onnx/operators/onnx__LRN.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import require_float, require_shape
from qglow.numerics.normalization import local_response


@register
@dataclass(frozen=True)
class LocalResponse(Operation):
    """dest = src / (bias + alpha / size * the squares of `size` neighbours along the last axis)^beta."""

    opcode: ClassVar[str] = "localresponse"
    signature: ClassVar[tuple[Operand, ...]] = (out(), read())

    size: int
    alpha: float
    beta: float
    bias: float

    def verify(self, types: Types) -> None:
        """Floats of one shape."""
        require_float(types, "dest", "src")
        require_shape(types, "dest", types["src"].shape, "that of src")
        require(bool(types["src"].shape), "a scalar has no neighbours")
        require(self.size >= 1, f"size {self.size} is not positive")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.normalization."""
        result = local_response(arrays["src"], self.size, self.alpha, self.beta, self.bias, axis=-1)
        arrays["dest"][...] = result
