"""Normalization by the elements nearby, or of a whole row, float32.

Definition: https://onnx.ai/onnx/operators/onnx__LRN.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import require_float, require_shape
from qglow.numerics.elementwise import add, mul
from qglow.numerics.normalization import local_response, standardize


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


@register
@dataclass(frozen=True)
class Standardize(Operation):
    """dest[r, :] = (src[r, :] - mean) * (1 / sqrt(variance + epsilon)) * scale + shift, where given.

    centres: whether the mean of the row is subtracted; else its variance is the mean of the squares. divides:
    whether the root is divided by, in place of a product with its reciprocal.

    Definition: https://onnx.ai/onnx/operators/onnx__LayerNormalization.html and
    https://onnx.ai/onnx/operators/onnx__RMSNormalization.html
    """

    opcode: ClassVar[str] = "standardize"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(),
        read(),
        read("scale", optional=True),
        read("shift", optional=True),
    )

    epsilon: float
    centres: bool = True
    divides: bool = False

    def verify(self, types: Types) -> None:
        """Floats of two axes, and one scale and shift for each element of a row."""
        require_float(types, "dest", "src", "scale", "shift")
        shape = types["src"].shape
        require(len(shape) == 2, f"src is {types['src']}, it must have two axes")
        require_shape(types, "dest", shape, "that of src")
        for name in ("scale", "shift"):
            require_shape(types, name, shape[1:], "one element for each of a row")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.normalization."""
        result = standardize(arrays["src"], (1,), self.epsilon, centres=self.centres, divides=self.divides)
        result = mul(result, arrays["scale"]) if "scale" in arrays else result
        arrays["dest"][...] = add(result, arrays["shift"]) if "shift" in arrays else result
