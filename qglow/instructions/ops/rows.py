"""Scales of rows, float32, measured while the program runs (rule 11 of the numeric contract)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import parameters_of, require_float, require_int8, require_shape
from qglow.numerics.rows import row_scales, rows_by_scales


@register
@dataclass(frozen=True)
class RowScales(Operation):
    """dest[r, 0] = max(max |src[r, :]| / 127, 2^-100), NaN where the row has an infinity or a NaN."""

    opcode: ClassVar[str] = "rowscales"
    signature: ClassVar[tuple[Operand, ...]] = (out(), read())

    def verify(self, types: Types) -> None:
        """Floats of two axes, of which dest has one element along the last."""
        require_float(types, "dest", "src")
        shape = types["src"].shape
        require(len(shape) == 2, f"src is {types['src']}, it must have two axes")
        require_shape(types, "dest", (shape[0], 1), "one element for each row of src")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.rows."""
        arrays["dest"][...] = row_scales(arrays["src"])


@register
@dataclass(frozen=True)
class QuantizeRows(Operation):
    """dest[r, :] = src[r, :] / scales[r, 0], clamped to -127 ... 127 and rounded half to even.

    scales: those that rowscales measures, which this writes. A row whose scale is NaN becomes zeros.
    """

    opcode: ClassVar[str] = "quantizerows"
    signature: ClassVar[tuple[Operand, ...]] = (out(), out("scales"), read())

    def verify(self, types: Types) -> None:
        """Integers of scale 1 from floats of two axes, and one scale for each row."""
        require_float(types, "scales", "src")
        require_int8(types, "dest")
        whole = parameters_of(types["dest"])
        require((whole.scale, whole.zero_point) == (1.0, 0), f"dest is {types['dest']}, not of scale 1")
        shape = types["src"].shape
        require(len(shape) == 2, f"src is {types['src']}, it must have two axes")
        require_shape(types, "dest", shape, "as many elements as src")
        require_shape(types, "scales", (shape[0], 1), "one element for each row of src")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.rows."""
        scales = row_scales(arrays["src"])
        arrays["dest"][...] = rows_by_scales(arrays["src"], scales)
        arrays["scales"][...] = scales
