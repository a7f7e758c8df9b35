"""Products of rows with the matrices of experts, one of several for each row."""

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
from qglow.instructions.ops.blocks import BlockGemm, verify_blocks, verify_rows
from qglow.instructions.ops.rules import INFINITY, require_float, require_rank, require_shape
from qglow.numerics.elementwise import clip
from qglow.numerics.experts import gemm_expert_blocks, gemm_experts
from qglow.numerics.half import widen


@dataclass(frozen=True)
class OfExperts(Operation):
    """Product of [M, K] whose rows have one of `experts` matrices, dest [M, N]; indices beyond are cut off.

    An index is an int32 or int64 for each row; a negative one counts from the end.
    """

    experts: int

    def verify_experts(self, types: Types, columns: int) -> None:
        """Shapes of dest, of the bias and of the experts of rows; `columns`: those of all experts."""
        require_float(types, "dest", "bias")
        require_rank(types, 2, "dest", "src")
        fits = self.experts > 0 and columns % self.experts == 0
        require(fits, f"{columns} columns are none of {self.experts} experts")
        rows, indices = types["src"].shape[0], types["experts"]
        integers = indices.element in (ElementType.INT32, ElementType.INT64)
        require(integers, f"experts is {indices}, not integers")
        require_shape(types, "experts", (rows,), "one for each row of src")
        require_shape(types, "bias", (columns,), "one for each column of all experts")
        require_shape(types, "dest", (rows, columns // self.experts), "rows of src, columns of an expert")


@register
@dataclass(frozen=True)
class ExpertGemm(OfExperts):
    """dest[m] = clamp(src[m] @ filter[:, columns of experts[m]] + their bias), floats.

    Every element is a chain of fused multiply-adds over ascending k that begins with the bias.
    """

    opcode: ClassVar[str] = "expertgemm"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(),
        read(),
        read("filter"),
        read("experts"),
        read("bias", optional=True),
        scratch(),
    )

    lo: float = -INFINITY
    hi: float = INFINITY

    def verify(self, types: Types) -> None:
        """Shapes of a matrix product for the columns of one expert."""
        require(self.lo <= self.hi, f"bounds lo={self.lo} and hi={self.hi} are not in order")
        require_float(types, "filter", "src")
        require_rank(types, 2, "filter", "src")
        depth, columns = types["filter"].shape
        self.verify_experts(types, columns)
        require_shape(types, "src", (types["dest"].shape[0], depth), "rows of dest and of filter")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.linear. Floats add up in numpy's order: compiled code keeps a tolerance."""
        operands = arrays["src"], widen(arrays["filter"]), arrays["experts"]
        found = gemm_experts(*operands, self.experts, arrays.get("bias"))
        arrays["dest"][...] = clip(found, self.lo, self.hi)


@register
@dataclass(frozen=True)
class ExpertBlockGemm(OfExperts):
    """dest[m] = clamp(src[m] @ weights of experts[m] + their bias), with weights in blocks.

    Every element is that of a blockgemm of the row and the columns of its expert; rows are the scales of
    the rows of an int8 src, as they are there.
    """

    opcode: ClassVar[str] = "expertblockgemm"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(),
        read(),
        read("filter"),
        read("scales"),
        read("experts"),
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
        require_rank(types, 2, "scales", "src")
        verify_blocks(types, self.bits, self.block, float_zeros=False)
        verify_rows(types)
        self.verify_experts(types, types["scales"].shape[1])

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.blocks."""
        operands = arrays["src"], arrays["filter"], arrays["scales"], arrays["experts"]
        zeros, bias, rows = (arrays.get(name) for name in ("zeros", "bias", "rows"))
        form = (self.bits, self.block, self.lo, self.hi)
        arrays["dest"][...] = gemm_expert_blocks(*operands, self.experts, zeros, bias, *form, rows)


AnyBlockGemm = BlockGemm | ExpertBlockGemm
"""Products with weights in blocks."""
