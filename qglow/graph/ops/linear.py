"""Matrix products. https://onnx.ai/onnx/operators/onnx__Gemm.html, onnx__MatMul.html"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from qglow.core.types import Array, TensorType, float_type
from qglow.graph.axes import AxisEffect
from qglow.graph.operator import Accumulate, Operator, Policy, Products, register, require
from qglow.graph.ops.rules import (
    Arrays,
    Bounded,
    Types,
    bias_operand,
    broadcast_shape,
    float_operand,
    given,
    operand,
    optional,
    parameters_of,
)
from qglow.graph.traits import Filters
from qglow.numerics.elementwise import clip
from qglow.numerics.linear import gemm_float, gemm_int8, matmul_int8, product_in_order
from qglow.numerics.requantize import quantized_bounds


@register
@dataclass(frozen=True)
class Gemm(Bounded):
    """x [M, K] times w [K, N], plus bias [N], within the real bounds `lo` and `hi`.

    Its int8 form takes int8 x and w, an int32 bias at scale s_x * s_w, and gives int8 or float.
    """

    name: ClassVar[str] = "Gemm"
    operands: ClassVar[tuple[str, ...]] = ("x", "w", "bias?")
    policy: ClassVar[Policy] = Accumulate()
    exact_in_onnxruntime: ClassVar[bool] = True

    lo: float = -math.inf
    hi: float = math.inf

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """[M, N]."""
        x, w = float_operand(inputs, 0, "x", 2), float_operand(inputs, 1, "w", 2)
        require(x.shape[1] == w.shape[0], f"x {x} and w {w} do not go together")
        bias_operand(inputs, 2, w.shape[1])
        return (float_type(x.shape[0], w.shape[1]),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.linear, then the bounds."""
        result = gemm_float(given(inputs, 0), given(inputs, 1), optional(inputs, 2))
        return (clip(result, self.lo, self.hi),)

    def evaluate_constants(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute sums in the order of K."""
        result, bias = product_in_order(given(inputs, 0), given(inputs, 1)), optional(inputs, 2)
        return (clip(result if bias is None else result + bias, self.lo, self.hi),)

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
        return (gemm_int8(x, x_quant, w, w_quant, bias, y_quant, lo, hi),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Rows and columns stay apart; K is summed over."""
        if axis == 1 - index:
            return AxisEffect(neutral=0.0)
        return AxisEffect(0 if index == 0 else 1)

    @property
    def filters(self) -> Filters:
        """Weights [K, N]."""
        return Filters(outputs=1, inputs=0)

    def constants_axis(self, inputs: Types) -> int | None:
        """The columns."""
        return 1

    def with_channels(self, count: int, inputs: Types) -> Self | None:
        """The weights alone say how many columns there are."""
        return self


@register
@dataclass(frozen=True)
class MatMul(Operator):
    """Product of stacks of matrices, leading axes broadcast, as numpy has it.

    Its int8 form takes two int8 activations and gives int8 or float.
    """

    name: ClassVar[str] = "MatMul"
    operands: ClassVar[tuple[str, ...]] = ("a", "b")
    policy: ClassVar[Policy] = Products()
    exact_in_onnxruntime: ClassVar[bool] = True

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """[..., M, N]; a vector stands for a row on the left and a column on the right."""
        a, b = float_operand(inputs, 0, "a"), float_operand(inputs, 1, "b")
        require(bool(a.shape) and bool(b.shape), f"a {a} and b {b} need an axis each")
        left = a.shape if len(a.shape) > 1 else (1, *a.shape)
        right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
        require(left[-1] == right[-2], f"a {a} and b {b} do not go together")
        rows = left[-2:-1] if len(a.shape) > 1 else ()
        columns = right[-1:] if len(b.shape) > 1 else ()
        return (float_type(*broadcast_shape(left[:-2], right[:-2]), *rows, *columns),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """float32 product."""
        return (np.asarray(np.matmul(given(inputs, 0), given(inputs, 1)), np.float32),)

    def evaluate_constants(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute sums in the order of the common axis."""
        return (product_in_order(given(inputs, 0), given(inputs, 1)),)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Rules 3 and 5 of the numeric contract."""
        a_quant, b_quant = parameters_of(input_types, 0), parameters_of(input_types, 1)
        if a_quant is None or b_quant is None:
            return super().evaluate_quantized(inputs, input_types, output_types)
        a, b = given(inputs, 0), given(inputs, 1)
        return (matmul_int8(a, a_quant, b, b_quant, output_types[0].quantization),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Rows, columns and stacks stay apart; the last axis of a and the one before it of b are summed."""
        shapes = [operand(inputs, place, name).shape for place, name in enumerate(("a", "b"))]
        rank, own = len(shapes[index]), max(map(len, shapes))
        if min(map(len, shapes)) < 2:
            return None
        if axis == (rank - 1 if index == 0 else rank - 2):
            return AxisEffect(neutral=0.0)
        return AxisEffect(axis + own - rank)
