"""Scales of rows, float32, measured while the program runs (rule 11 of the numeric contract)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import require_float, require_shape
from qglow.numerics.rows import row_scales


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
