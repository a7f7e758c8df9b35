"""Slices as views: concatenation and slicing without moving data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.instructions.liveness import Usage
from qglow.instructions.ops.movement import Extract, Insert
from qglow.instructions.passes.placement import Placement, place, why_not
from qglow.instructions.passes.reading import read_in_place, why_not_read
from qglow.instructions.program import Program


@dataclass(frozen=True)
class InsertViews(Pass[Program]):
    """What is inserted into a buffer is computed there (the parts of a concatenation)."""

    name: ClassVar[str] = "insert-views"

    def run(self, ir: Program, log: PassLog) -> None:
        """Every insert in order; the others stay and copy."""
        for insert in list(ir.code):
            operation = insert.operation
            if not isinstance(operation, Insert) or log.exhausted:
                continue
            dest, src = insert.operand("dest"), insert.operand("src")
            placement = Placement(src, dest, operation.offsets)
            reason = why_not(ir, Usage(ir), placement, ir.code.index(insert))
            if reason is not None:
                log.refused(f"%{insert.name}", reason)
                continue
            ir.code.remove(insert)
            place(ir, placement)
            log.applied(f"%{insert.name}", f"%{src.name} is computed in %{dest.name}")


@dataclass(frozen=True)
class ExtractViews(Pass[Program]):
    """A slice is read where it is."""

    name: ClassVar[str] = "extract-views"

    def run(self, ir: Program, log: PassLog) -> None:
        """Every extract in order; the others stay and copy."""
        for extract in list(ir.code):
            operation = extract.operation
            if not isinstance(operation, Extract) or log.exhausted:
                continue
            dest, src = extract.operand("dest"), extract.operand("src")
            reason = None if set(operation.steps) <= {1} else "it takes steps"
            reason = reason or why_not_read(Usage(ir), dest, src, operation.offsets, ir.code.index(extract))
            if reason is not None:
                log.refused(f"%{extract.name}", reason)
                continue
            read_in_place(ir, extract, dest, src, operation.offsets)
            log.applied(f"%{extract.name}", f"%{dest.name} is read in %{src.name}")
