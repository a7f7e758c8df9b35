"""Scales of rows that are measured while the model runs (rule 11 of the numeric contract)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import Array, Quantization, TensorType
from qglow.graph.axes import AxisEffect
from qglow.graph.operator import KeepFloat, Operator, Policy, register, require
from qglow.graph.ops.rules import Arrays, Types, float_operand, given, operand
from qglow.numerics.rows import row_scales

THEMSELVES = Quantization((1.0,), (0,))
"""Parameters of integers that stand for themselves."""


@register
@dataclass(frozen=True)
class RowScales(Operator):
    """The scale that brings every row along the last axis to -127 ... 127; NaN if it has no finite one."""

    name: ClassVar[str] = "RowScales"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = KeepFloat("it measures what its rows are scaled by")
    measures_rows: ClassVar[bool] = True

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x with one element along the last axis."""
        x = float_operand(inputs, 0, "x")
        require(bool(x.shape), f"x {x} has no rows")
        return (x.with_shape((*x.shape[:-1], 1)),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.rows."""
        return (row_scales(given(inputs, 0)),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Rows stay apart."""
        return AxisEffect(axis) if axis < len(operand(inputs, 0, "x").shape) - 1 else None
