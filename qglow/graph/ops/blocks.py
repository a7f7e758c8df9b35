"""Products with weights in blocks (rule 12 of the numeric contract), and look-ups of tables in blocks.

See onnxruntime's MatMulNBits and GatherBlockQuantized:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from qglow.core.types import Array, ElementType, TensorType, float_type
from qglow.graph.axes import AxisEffect
from qglow.graph.operator import KeepFloat, Operator, Policy, register, require
from qglow.graph.ops.rows import THEMSELVES
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
from qglow.numerics.blocks import (
    block_count,
    block_fault,
    gather_blocks,
    gemm_blocks,
    gemm_integer_blocks,
    packed_rows,
)


@register
@dataclass(frozen=True)
class BlockGemm(Bounded):
    """x [..., K] times w [K, N], plus bias [N], within the real bounds `lo` and `hi`.

    x is float or, with row_scales [..., 1], the integers of rows that stand for themselves.

    w holds codes of `bits` bits as numerics.blocks packs them. scales, and zero points where these are not
    the middle of the codes, are given for every `block` weights along K and every column: [blocks, N].
    scales may be float16; zero points that are integers may be packed like codes.
    """

    name: ClassVar[str] = "BlockGemm"
    operands: ClassVar[tuple[str, ...]] = (
        "x",
        "w",
        "scales",
        "zero_points?",
        "bias?",
        "row_scales?",
    )
    policy: ClassVar[Policy] = KeepFloat(
        "its weights are in blocks, its activations are float", scaled_by="row_scales"
    )
    plain_operands: ClassVar[tuple[str, ...]] = ("w", "scales", "zero_points", "bias", "row_scales")
    half_operands: ClassVar[tuple[str, ...]] = ("scales",)

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
        measured = len(inputs) > 5 and inputs[5] is not None
        x, columns = check_blocks(inputs, self.weight_blocks, 3, float_zeros=not measured)
        check_rows(inputs, x, 5)
        if len(inputs) > 4 and inputs[4] is not None:
            vector_operand(inputs, 4, "bias", columns)
        return (x.with_shape((*x.shape[:-1], columns)),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Rows stay apart."""
        rank = len(float_operand(inputs, 0, "x").shape)
        return AxisEffect(axis) if index in (0, 5) and axis < rank - 1 else None

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.blocks."""
        x, w, scales = (given(inputs, index) for index in range(3))
        zeros, bias, rows = (optional(inputs, index) for index in (3, 4, 5))
        operands, form = (w, scales, zeros, bias), (self.bits, self.block, self.lo, self.hi)
        if rows is not None:
            return (gemm_integer_blocks(x, rows, *operands, *form),)
        return (gemm_blocks(x, *operands, *form),)


def check_blocks(
    inputs: Types, form: BlockForm, zeros_at: int, float_zeros: bool = False
) -> tuple[TensorType, int]:
    """The type of x [..., K], and the columns of weights in blocks.

    Weights are operand 1, scales operand 2, zero points operand `zeros_at`.
    float_zeros: whether zero points may be floats. Raises OperatorTypeError.
    """
    fault = block_fault(form.bits, form.block)
    require(fault is None, str(fault))
    x, scales = float_operand(inputs, 0, "x"), float_operand(inputs, 2, "scales", 2)
    require(bool(x.shape), f"x {x} has no rows")
    depth, columns = x.shape[-1], scales.shape[1]
    wanted = TensorType(ElementType.UINT8, (packed_rows(depth, form.bits), columns))
    require(inputs[1] == wanted, f"operand w is {inputs[1]}, it must be {wanted}")
    blocks = (block_count(depth, form.block), columns)
    require(scales.shape == blocks, f"operand scales is {scales}, it must be {float_type(*blocks)}")
    zeros = inputs[zeros_at] if len(inputs) > zeros_at else None
    kinds = [TensorType(ElementType.UINT8, blocks), *([float_type(*blocks)] if float_zeros else [])]
    packed = TensorType(ElementType.UINT8, (packed_rows(blocks[0], form.bits), columns))
    allowed = " or ".join(str(kind) for kind in kinds)
    fits = zeros is None or zeros in (*kinds, packed)
    require(fits, f"operand zero_points is {zeros}, it must be {allowed}")
    return x, columns


def check_rows(inputs: Types, x: TensorType, place: int) -> None:
    """Raise OperatorTypeError unless x is float, or int8 of scale 1 beside scales of its rows.

    x: its type in float. place: that of the operand row_scales [..., 1].
    """
    given_x = inputs[0]
    assert given_x is not None
    if len(inputs) <= place or inputs[place] is None:
        require(not given_x.is_quantized, f"operand x is {given_x}, it must be float without row_scales")
        return
    wanted = x.quantized(THEMSELVES)
    require(given_x == wanted, f"operand x is {given_x}, it must be {wanted} beside row_scales")
    scales, fitting = float_operand(inputs, place, "row_scales"), x.with_shape((*x.shape[:-1], 1))
    require(scales == fitting, f"operand row_scales is {scales}, it must be {fitting}")


@register
@dataclass(frozen=True)
class BlockGather(Operator):
    """Rows of a table, chosen by integer indices; negative ones count from the end.

    table [rows, bytes] holds codes of `bits` bits, of a row of `width` several in a byte, the first in the
    lowest bits. scales, and zero points where these are not the middle of the codes, are given for every
    `block` codes of a row: [rows, blocks]. scales may be float16, and zero points packed like codes.
    by_columns: whether the axes of all three are exchanged, as those of the weights of a BlockGemm.
    """

    name: ClassVar[str] = "BlockGather"
    operands: ClassVar[tuple[str, ...]] = ("table", "indices", "scales", "zero_points?")
    policy: ClassVar[Policy] = KeepFloat("its table is in blocks, its results are float")
    half_operands: ClassVar[tuple[str, ...]] = ("scales",)

    width: int
    bits: int = 4
    block: int = 32
    by_columns: bool = False

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """[..., width], for indices [...]."""
        fault = block_fault(self.bits, self.block)
        require(fault is None, str(fault))
        scales, indices = float_operand(inputs, 2, "scales", 2), operand(inputs, 1, "indices")
        integers = (ElementType.INT32, ElementType.INT64)
        require(indices.element in integers, f"operand indices is {indices}, it must be integers")
        rows, blocks = scales.shape[self.axis], block_count(self.width, self.block)
        wanted = self._bytes(rows, packed_rows(self.width, self.bits))
        require(inputs[0] == wanted, f"operand table is {inputs[0]}, it must be {wanted}")
        kind, packed = self._bytes(rows, blocks), self._bytes(rows, packed_rows(blocks, self.bits))
        real = float_type(*kind.shape)
        require(scales.shape == real.shape, f"operand scales is {scales}, it must be {real}")
        zeros = inputs[3] if len(inputs) > 3 else None
        require(zeros in (None, kind, packed), f"operand zero_points is {zeros}, it must be {kind}")
        return (float_type(*indices.shape, self.width),)

    @property
    def axis(self) -> int:
        """The axis of rows."""
        return int(self.by_columns)

    @property
    def table_blocks(self) -> BlockForm | None:
        """Bits and block of its fields."""
        return None if self.by_columns else BlockForm(self.bits, self.block)

    def of_columns(self) -> Self:
        """The same look-up by columns."""
        return replace(self, by_columns=True)

    def _bytes(self, rows: int, each: int) -> TensorType:
        """Type of so many bytes for each row."""
        return TensorType(ElementType.UINT8, (each, rows) if self.by_columns else (rows, each))

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Axes of the indices stand in place of the one that they choose from."""
        return AxisEffect(axis, neutral=0.0) if index == 1 else None

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.blocks. Raises IndexError for an index that is out of range."""
        table, indices, scales = (given(inputs, index) for index in range(3))
        zeros, form = optional(inputs, 3), (self.width, self.bits, self.block, self.by_columns)
        return (gather_blocks(table, indices, scales, zeros, *form),)
