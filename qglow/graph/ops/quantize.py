"""Borders between float and int8, and the probe that records a profile.

https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html, onnx__DequantizeLinear.html
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import Array, TensorType
from qglow.graph.operator import KeepFloat, Operator, OperatorTypeError, Policy, Rescaled, register
from qglow.graph.ops.rules import Arrays, Bounded, Types, float_operand, given, parameters_of
from qglow.graph.traits import Conversion
from qglow.numerics.elementwise import clip, clip_int8

# Quantize and Dequantize compute nothing beyond what the base class does at every border.


class StorageChange(Operator):
    """Base of operators that change how reals are stored and nothing else."""

    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = KeepFloat("a border between float and int8")
    aligned: ClassVar[bool] = True
    takes_slices: ClassVar[bool] = True

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        return (float_operand(inputs, 0, "x"),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """x: the reals stay."""
        return (given(inputs, 0),)


@register
@dataclass(frozen=True)
class Quantize(StorageChange):
    """Float x as int8 with the parameters of the result's type (rule 1)."""

    name: ClassVar[str] = "Quantize"
    conversion: ClassVar[Conversion | None] = Conversion(takes_integers=False, gives_integers=True)


@register
@dataclass(frozen=True)
class Dequantize(StorageChange):
    """int8 x as float (rule 2)."""

    name: ClassVar[str] = "Dequantize"
    conversion: ClassVar[Conversion | None] = Conversion(takes_integers=True, gives_integers=False)


@register
@dataclass(frozen=True)
class Rescale(Bounded):
    """int8 x as int8 with the parameters of the result's type, within real bounds (rule 6)."""

    name: ClassVar[str] = "Rescale"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = Rescaled()
    takes_slices: ClassVar[bool] = True
    conversion: ClassVar[Conversion | None] = Conversion(takes_integers=True, gives_integers=True)
    aligned: ClassVar[bool] = True

    lo: float = -math.inf
    hi: float = math.inf

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        return (float_operand(inputs, 0, "x"),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """The bounds alone: the reals stay."""
        return (clip(given(inputs, 0), self.lo, self.hi),)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Compute with numerics.requantize.rescale. Raises OperatorTypeError unless both sides are int8."""
        x_quant, y_quant = parameters_of(input_types, 0), output_types[0].quantization
        if x_quant is None or y_quant is None:
            raise OperatorTypeError("Rescale takes int8 and gives int8")
        return (clip_int8(given(inputs, 0), x_quant, y_quant, self.lo, self.hi),)


@register
@dataclass(frozen=True)
class QuantizationProfile(Operator):
    """Records the distribution of x. It gives nothing, and is kept although nobody reads it.

    channels: whether axis 0 of x are samples, so that statistics of channels can be kept.
    """

    name: ClassVar[str] = "QuantizationProfile"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = KeepFloat("a probe of float values")

    channels: bool = True

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """Nothing."""
        float_operand(inputs, 0, "x")
        return ()

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Nothing: who wants the statistics taps the value."""
        return ()
