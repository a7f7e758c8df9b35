"""Products with weights that are quantized in blocks (rule 12 of the numeric contract)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import ElementType
from qglow.instructions.operation import (
    Arrays,
    Operand,
    Operation,
    Types,
    out,
    read,
    register,
    require,
    scratch,
)
from qglow.instructions.ops.rules import INFINITY, require_float, require_rank, require_reals, require_shape
from qglow.numerics.blocks import block_count, block_fault, gemm_blocks, gemm_integer_blocks, packed_rows


@register
@dataclass(frozen=True)
class BlockGemm(Operation):
    """dest[M, N] = clamp(src[M, K] @ weights[K, N] + bias[N]); weights are (filter - zeros) * scales.

    In each block along K one chain of fused multiply-adds over ascending k from 0, then one over ascending
    blocks with their scales, from 0; the bias is added last. With rows, which are scales of the rows of an
    int8 src, each block has an exact sum of integers, and the chain over blocks takes both scales.
    """

    opcode: ClassVar[str] = "blockgemm"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(),
        read(),
        read("filter"),
        read("scales"),
        read("zeros", optional=True),
        read("bias", optional=True),
        read("rows", optional=True),
        scratch(),
    )

    bits: int = 4
    block: int = 32
    lo: float = -INFINITY
    hi: float = INFINITY

    def verify(self, types: Types) -> None:
        """Shapes of a matrix product and of its blocks; codes are bytes, all else is float."""
        require(self.lo <= self.hi, f"bounds lo={self.lo} and hi={self.hi} are not in order")
        require_float(types, "dest", "bias")
        require_rank(types, 2, "dest", "src", "scales")
        verify_blocks(types, self.bits, self.block, float_zeros="rows" not in types)
        verify_rows(types)
        rows, columns = types["src"].shape[0], types["scales"].shape[1]
        require_shape(types, "bias", (columns,), "one for each column")
        require_shape(types, "dest", (rows, columns), "rows of src, columns of scales")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.blocks."""
        src, filters, scales = (arrays[name] for name in ("src", "filter", "scales"))
        zeros, bias, rows = (arrays.get(name) for name in ("zeros", "bias", "rows"))
        operands, form = (filters, scales, zeros, bias), (self.bits, self.block, self.lo, self.hi)
        if rows is not None:
            arrays["dest"][...] = gemm_integer_blocks(src, rows, *operands, *form)
        else:
            arrays["dest"][...] = gemm_blocks(src, *operands, *form)


def verify_blocks(types: Types, bits: int, block: int, float_zeros: bool) -> None:
    """Shapes and types of weights in blocks, for a src and scales of two axes.

    float_zeros: whether zero points may be floats. Raises TypeErrorInOperation.
    """
    fault = block_fault(bits, block)
    require(fault is None, str(fault))
    require_reals(types, "scales")
    depth, columns = types["src"].shape[1], types["scales"].shape[1]
    blocks = (block_count(depth, block), columns)
    require_shape(types, "scales", blocks, "one for each block and column")
    require_shape(types, "filter", (packed_rows(depth, bits), columns), "packed codes of all k")
    require(types["filter"].element is ElementType.UINT8, f"filter is {types['filter']}, not u8")
    zeros = types.get("zeros")
    fits = zeros is None or (zeros.is_float and float_zeros) or zeros.element is ElementType.UINT8
    require(fits, f"zeros is {zeros}, not u8" + (" or float" if float_zeros else ""))
    if zeros is None or zeros.is_float or zeros.shape != (packed_rows(blocks[0], bits), columns):
        require_shape(types, "zeros", blocks, "one for each block and column")


def verify_rows(types: Types) -> None:
    """Types of a src of two axes, float or int8 beside scales of its rows. Raises TypeErrorInOperation."""
    measured, src = "rows" in types, types["src"]
    require_float(types, "rows")
    fits = src.is_float if not measured else src.element is ElementType.INT8 and src.is_quantized
    require(fits, f"src is {src}: it is float, and int8 beside scales of rows")
    require_shape(types, "rows", (src.shape[0], 1), "one for each row of src")
