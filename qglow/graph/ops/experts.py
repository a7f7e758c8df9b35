"""Products of rows with the matrices of experts, one of several for each row.

Mixtures of experts are made of them. See onnxruntime's MoE and QMoE:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MoE
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import Array, ElementType, TensorType, float_type
from qglow.graph.axes import AxisEffect
from qglow.graph.operator import KeepFloat, Policy, register, require
from qglow.graph.ops.blocks import check_blocks, check_rows
from qglow.graph.ops.rules import (
    Arrays,
    Bounded,
    Types,
    float_operand,
    given,
    operand,
    optional,
    vector_operand,
)
from qglow.graph.traits import BlockForm
from qglow.numerics.elementwise import clip
from qglow.numerics.experts import gemm_expert_blocks, gemm_experts


class OfExperts(Bounded):
    """Base of products whose rows have experts of their own, of which there are `experts`."""

    experts: int

    def check_experts(self, inputs: Types, index: int, columns: int) -> int:
        """Columns of one expert, where all have `columns` and operand `index` holds those of the rows."""
        x, indices = float_operand(inputs, 0, "x"), operand(inputs, index, "experts")
        require(bool(x.shape), f"x {x} has no rows")
        integers = (ElementType.INT32, ElementType.INT64)
        fits = indices.element in integers and indices.shape == x.shape[:-1]
        require(fits, f"operand experts is {indices}, it must be integers {list(x.shape[:-1])}")
        fits = self.experts > 0 and columns % self.experts == 0
        require(fits, f"{columns} columns are none of {self.experts} experts")
        return columns // self.experts

    def row_effect(
        self, index: int, chosen: int, axis: int, inputs: Types, by_rows: tuple[int, ...] = (0,)
    ) -> AxisEffect | None:
        """Rows stay apart; `chosen`: the operand of their experts, by_rows: those with the axes of x."""
        rank = len(float_operand(inputs, 0, "x").shape)
        if index == chosen:
            return AxisEffect(axis, neutral=0.0)
        return AxisEffect(axis) if index in by_rows and axis < rank - 1 else None


@register
@dataclass(frozen=True)
class ExpertGemm(OfExperts):
    """x [..., K] times the matrix of each row's expert, plus its bias, within the real bounds `lo` and `hi`.

    w [K, experts * N] holds the matrices beside each other, bias [experts * N] the biases; `experts` [...]
    are integers, and negative ones count from the end.
    """

    name: ClassVar[str] = "ExpertGemm"
    operands: ClassVar[tuple[str, ...]] = ("x", "w", "experts", "bias?")
    policy: ClassVar[Policy] = KeepFloat("each row has a matrix of its own, of which the weights get blocks")
    plain_operands: ClassVar[tuple[str, ...]] = ("w", "experts", "bias")

    experts: int
    lo: float = -math.inf
    hi: float = math.inf

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """[..., N]."""
        x, w = float_operand(inputs, 0, "x"), float_operand(inputs, 1, "w", 2)
        columns = self.check_experts(inputs, 2, w.shape[1])
        require(x.shape[-1] == w.shape[0], f"x {x} and w {w} do not go together")
        if len(inputs) > 3 and inputs[3] is not None:
            vector_operand(inputs, 3, "bias", w.shape[1])
        return (float_type(*x.shape[:-1], columns),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.experts."""
        return self._evaluated(inputs, in_order=False)

    def evaluate_constants(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute sums in the order of K."""
        return self._evaluated(inputs, in_order=True)

    def _evaluated(self, inputs: Arrays, in_order: bool) -> tuple[Array, ...]:
        x, w, indices = (given(inputs, place) for place in range(3))
        found = gemm_experts(x, w, indices, self.experts, optional(inputs, 3), in_order)
        return (clip(found, self.lo, self.hi),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Rows stay apart."""
        return self.row_effect(index, 2, axis, inputs)

    def with_weight_blocks(self, form: BlockForm) -> ExpertBlockGemm:
        """The same product of all experts' columns in blocks."""
        return ExpertBlockGemm(self.experts, form.bits, form.block, self.lo, self.hi)


@register
@dataclass(frozen=True)
class ExpertBlockGemm(OfExperts):
    """ExpertGemm whose weights are in blocks along K, as those of BlockGemm are, for all experts' columns.

    x is float or, with row_scales [..., 1], the integers of rows that stand for themselves. w holds codes
    [K, experts * N] of `bits` bits, scales and zero points [blocks, experts * N].
    """

    name: ClassVar[str] = "ExpertBlockGemm"
    operands: ClassVar[tuple[str, ...]] = (
        "x",
        "w",
        "scales",
        "experts",
        "zero_points?",
        "bias?",
        "row_scales?",
    )
    policy: ClassVar[Policy] = KeepFloat(
        "its weights are in blocks, its activations are float", scaled_by="row_scales"
    )
    plain_operands: ClassVar[tuple[str, ...]] = (
        "w",
        "scales",
        "experts",
        "zero_points",
        "bias",
        "row_scales",
    )
    half_operands: ClassVar[tuple[str, ...]] = ("scales",)

    experts: int
    bits: int = 4
    block: int = 32
    lo: float = -math.inf
    hi: float = math.inf

    @property
    def weight_blocks(self) -> BlockForm:
        """Bits and block of its fields."""
        return BlockForm(self.bits, self.block)

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """[..., N]."""
        x, total = check_blocks(inputs, self.weight_blocks, 4)
        check_rows(inputs, x, 6)
        columns = self.check_experts(inputs, 3, total)
        if len(inputs) > 5 and inputs[5] is not None:
            vector_operand(inputs, 5, "bias", total)
        return (float_type(*x.shape[:-1], columns),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Rows stay apart."""
        return self.row_effect(index, 3, axis, inputs, by_rows=(0, 6))

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.experts."""
        x, w, scales, indices = (given(inputs, place) for place in range(4))
        zeros, bias, rows = (optional(inputs, place) for place in (4, 5, 6))
        form = (self.bits, self.block, self.lo, self.hi)
        return (gemm_expert_blocks(x, w, scales, indices, self.experts, zeros, bias, *form, rows),)
