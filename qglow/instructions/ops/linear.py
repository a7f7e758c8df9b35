"""Matrix products with a constant or a second operand: rows times a K x N matrix.

Definition: https://onnx.ai/onnx/operators/onnx__Gemm.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

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
    scratch,
)
from qglow.instructions.ops.conv import verify_accumulation
from qglow.instructions.ops.rules import (
    BoundedOperation,
    parameters_of,
    require_float,
    require_float_or_int8,
    require_int8,
    require_rank,
    require_shape,
)
from qglow.numerics.elementwise import clip
from qglow.numerics.half import widen
from qglow.numerics.linear import gemm_accumulate, gemm_float, matmul_int8
from qglow.numerics.rows import scaled_sums


@register
@dataclass(frozen=True)
class FullyConnected(BoundedOperation):
    """dest[M, N] = clamp(src[M, K] @ filter[K, N] + bias[N]); int8 forms as in Convolution.

    With `row_scales` int8 rows have scales of their own (rule 11 of the numeric contract):
    dest[m, n] = clamp(float32(sum) * (row_scales[m, 0] * multiplier[n]) + addend[n]), the addend if there is
    one.
    """

    opcode: ClassVar[str] = "fullyconnected"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(),
        read(),
        read("filter"),
        read("bias", optional=True),
        read("multiplier", optional=True),
        read("row_scales", optional=True),
        read("addend", optional=True),
        scratch(),
    )
    has_epilogue: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """Shapes of a matrix product, operand types of one of the forms."""
        self.verify_bounds(types["dest"])
        require_rank(types, 2, "dest", "src", "filter")
        (rows, depth), (filter_depth, columns) = types["src"].shape, types["filter"].shape
        require(depth == filter_depth, f"src has {depth} columns, filter {filter_depth} rows")
        require_shape(types, "dest", (rows, columns), "rows of src, columns of filter")
        verify_accumulation(types, columns)
        if "row_scales" in types:
            require("multiplier" in types and types["dest"].is_float, "only sums of int8 have scales of rows")
            require_float(types, "row_scales", "addend")
            require_shape(types, "row_scales", (rows, 1), "one element for each row of src")
            require_shape(types, "addend", (columns,), "one a column")
        else:
            require("addend" not in types, "an addend goes with scales of rows")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.linear."""
        src, filters, bias = arrays["src"], arrays["filter"], arrays.get("bias")
        if types["src"].is_float:
            arrays["dest"][...] = clip(gemm_float(src, widen(filters), bias), self.lo, self.hi)
            return
        acc = gemm_accumulate(src, parameters_of(types["src"]).zero_point, filters, 0, bias)
        if "row_scales" in arrays:
            factors = arrays["row_scales"], arrays["multiplier"]
            result = clip(scaled_sums(acc, *factors, arrays.get("addend")), self.lo, self.hi)
        else:
            result = self.finish(acc, arrays["multiplier"], types["dest"]) if "multiplier" in arrays else acc
        arrays["dest"][...] = result


@register
@dataclass(frozen=True)
class MatMul(Operation):
    """dest[..., M, N] = lhs[..., M, K] @ rhs[..., K, N]; leading axes broadcast.

    float: every element is one chain of fused multiply-adds over ascending k, starting from 0.
    int8: int32 accumulation of (lhs - zero point) * (rhs - zero point), then (s_l * s_r) / s_d for an
    int8 dest, s_l * s_r for a float one.
    """

    opcode: ClassVar[str] = "matmul"
    signature: ClassVar[tuple[Operand, ...]] = (out(), read("lhs"), read("rhs"), scratch())
    sums_products: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """Shapes of a stack of matrix products, float or of two int8 activations."""
        if types["lhs"].is_float:
            require_float(types, "dest", "rhs")
        else:
            require_int8(types, "lhs", "rhs")
            require_float_or_int8(types, "dest")
        lhs, rhs = types["lhs"].shape, types["rhs"].shape
        require(min(len(lhs), len(rhs)) >= 2, f"lhs {lhs} and rhs {rhs} are not matrices")
        require(lhs[-1] == rhs[-2], f"lhs has {lhs[-1]} columns, rhs {rhs[-2]} rows")
        try:
            leading = np.broadcast_shapes(lhs[:-2], rhs[:-2])
        except ValueError:
            raise TypeErrorInOperation(f"leading axes of {lhs} and {rhs} do not broadcast") from None
        require_shape(types, "dest", (*leading, lhs[-2], rhs[-1]), "a stack of products")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.linear. Floats add up in numpy's order: compiled code keeps a tolerance."""
        lhs, rhs = arrays["lhs"], arrays["rhs"]
        if types["lhs"].is_float:
            arrays["dest"][...] = gemm_float(lhs, rhs)
        else:
            parameters = [parameters_of(types[name]) for name in ("lhs", "rhs")]
            arrays["dest"][...] = matmul_int8(
                lhs, parameters[0], rhs, parameters[1], types["dest"].quantization
            )
