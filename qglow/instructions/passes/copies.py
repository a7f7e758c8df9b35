"""Elimination of copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.instructions.ops.memory import Copy
from qglow.instructions.passes.code import Code
from qglow.instructions.passes.placement import Placement, place, why_not
from qglow.instructions.passes.reading import read_in_place, why_not_read
from qglow.instructions.program import Instruction, Program


@dataclass(frozen=True)
class CopyElimination(Pass[Program]):
    """Compute the source of a copy where the copy would go, or read the copy from its source."""

    name: ClassVar[str] = "copy-elimination"

    def run(self, ir: Program, log: PassLog) -> None:
        """Visit every copy in order."""
        code = Code(ir)
        for instruction in [i for i in ir.code if isinstance(i.operation, Copy)]:
            if not log.exhausted:
                self._eliminate(code, instruction, log)
        code.finish()

    @staticmethod
    def _eliminate(code: Code, copy: Instruction, log: PassLog) -> None:
        where, dest, src = f"%{copy.name}", copy.operand("dest"), copy.operand("src")
        placement = Placement(src, dest)
        reason = why_not(code, placement, copy)
        if reason is None:
            what = f"%{src.root.name} is computed in %{dest.name}"
            code.remove(copy)
            place(code, placement)
            log.applied(where, what)
            return
        offsets = (0,) * len(src.type.shape)
        reason_to_copy = why_not_read(code, dest, src, offsets, copy)
        if reason_to_copy is not None:
            log.refused(where, f"{reason}; {reason_to_copy}")
            return
        what = f"%{dest.name} is read in %{src.name}"
        read_in_place(code, copy, dest, src, offsets)
        log.applied(where, what)
