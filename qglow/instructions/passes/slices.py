"""Slices as views: concatenation and slicing without moving data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.instructions.ops.movement import Extract, Insert
from qglow.instructions.passes.code import Code
from qglow.instructions.passes.placement import Placement, place, why_not
from qglow.instructions.passes.reading import read_in_place, why_not_read
from qglow.instructions.program import Program


@dataclass(frozen=True)
class InsertViews(Pass[Program]):
    """Compute a value that is inserted into a buffer (part of a concatenation) at its place there."""

    name: ClassVar[str] = "insert-views"

    def run(self, ir: Program, log: PassLog) -> None:
        """Visit inserts in order; those that cannot be views stay and copy."""
        code = Code(ir)
        for insert in list(ir.code):
            operation = insert.operation
            if not isinstance(operation, Insert) or log.exhausted:
                continue
            dest, src = insert.operand("dest"), insert.operand("src")
            placement = Placement(src, dest, operation.offsets)
            reason = why_not(code, placement, insert)
            if reason is not None:
                log.refused(f"%{insert.name}", reason)
                continue
            what = f"%{src.name} is computed in %{dest.name}"
            code.remove(insert)
            place(code, placement)
            log.applied(f"%{insert.name}", what)
        code.finish()


@dataclass(frozen=True)
class ExtractViews(Pass[Program]):
    """Read a slice where it is, without a copy."""

    name: ClassVar[str] = "extract-views"

    def run(self, ir: Program, log: PassLog) -> None:
        """Visit extracts in order; those that cannot be views stay and copy."""
        code = Code(ir)
        for extract in list(ir.code):
            operation = extract.operation
            if not isinstance(operation, Extract) or log.exhausted:
                continue
            dest, src = extract.operand("dest"), extract.operand("src")
            reason = None if set(operation.steps) <= {1} else "it takes steps"
            reason = reason or why_not_read(code, dest, src, operation.offsets, extract)
            if reason is not None:
                log.refused(f"%{extract.name}", reason)
                continue
            what = f"%{dest.name} is read in %{src.name}"
            read_in_place(code, extract, dest, src, operation.offsets)
            log.applied(f"%{extract.name}", what)
        code.finish()
