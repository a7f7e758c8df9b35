"""Removing copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.instructions.liveness import Usage
from qglow.instructions.ops.memory import Copy
from qglow.instructions.passes.placement import Placement, place, why_not
from qglow.instructions.passes.reading import read_in_place, why_not_read
from qglow.instructions.program import Instruction, Program


@dataclass(frozen=True)
class CopyElimination(Pass[Program]):
    """The source of a copy is computed where the copy would go, or is read where it is."""

    name: ClassVar[str] = "copy-elimination"

    def run(self, ir: Program, log: PassLog) -> None:
        """Every copy in order."""
        for instruction in [i for i in ir.code if isinstance(i.operation, Copy)]:
            if log.exhausted:
                return
            self._eliminate(ir, instruction, log)

    @staticmethod
    def _eliminate(program: Program, copy: Instruction, log: PassLog) -> None:
        where, at = f"%{copy.name}", program.code.index(copy)
        dest, src = copy.operand("dest"), copy.operand("src")
        usage = Usage(program)
        placement = Placement(src, dest)
        reason = why_not(program, usage, placement, at)
        if reason is None:
            program.code.remove(copy)
            place(program, placement)
            log.applied(where, f"%{src.root.name} is computed in %{dest.name}")
            return
        offsets = (0,) * len(src.type.shape)
        reason_to_copy = why_not_read(usage, dest, src, offsets, at)
        if reason_to_copy is not None:
            log.refused(where, f"{reason}; {reason_to_copy}")
            return
        read_in_place(program, copy, dest, src, offsets)
        log.applied(where, f"%{dest.name} is read in %{src.name}")
