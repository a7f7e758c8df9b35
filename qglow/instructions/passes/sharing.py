"""In-place execution: the result of an instruction takes the buffer of one of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.instructions.liveness import overlap
from qglow.instructions.passes.code import Code
from qglow.instructions.passes.placement import Placement, place, why_not
from qglow.instructions.program import Instruction, Program


@dataclass(frozen=True)
class ShareBuffers(Pass[Program]):
    """Compute an input that is read for the last time in the buffer of the result.

    As its `in_place` pairs say, an instruction reads each element before it writes it, so the lifetime of
    the input may end at the instruction where that of the result begins.
    """

    name: ClassVar[str] = "share-buffers"

    def run(self, ir: Program, log: PassLog) -> None:
        """Visit every instruction that can work in place, in order."""
        code = Code(ir)
        for instruction in list(ir.code):
            if instruction.operation.in_place and not log.exhausted:
                self._share(code, instruction, log)
        code.finish()

    def _share(self, code: Code, instruction: Instruction, log: PassLog) -> None:
        reasons = []
        for out_name, in_name in _latest_first(code, instruction):
            placement = Placement(instruction.operand(in_name), instruction.operand(out_name))
            reason = self._why_not(code, instruction, placement)
            if reason is None:
                what = f"in place: %{placement.inner.name} is computed in %{placement.outer.name}"
                place(code, placement)
                log.applied(f"%{instruction.name}", what)
                return
            reasons.append(f"{in_name}: {reason}")
        log.refused(f"%{instruction.name}", "; ".join(reasons))

    @staticmethod
    def _why_not(code: Code, instruction: Instruction, placement: Placement) -> str | None:
        if placement.inner.type.size != placement.outer.type.size:
            return f"%{placement.inner.name} spreads over %{placement.outer.name}"
        last = code.last(placement.inner)
        if last is not None and code.precedes(instruction, last):
            return f"%{placement.inner.name} is read later by %{last.name}"
        for spec, buffer in instruction.operands():
            if buffer is placement.outer:
                continue
            if overlap(buffer, placement.outer):
                return f"{spec.name} already is memory of %{placement.outer.root.name}"
            paired = any(pair[1] == spec.name for pair in instruction.operation.in_place)
            if overlap(buffer, placement.source) and not (paired and buffer is placement.source):
                return f"{spec.name} reads %{buffer.name} out of step"
        return why_not(code, placement, instruction)


def _latest_first(code: Code, instruction: Instruction) -> list[tuple[str, str]]:
    """The `in_place` pairs, the input written last before the others: its writer may have an epilogue."""

    def written(pair: tuple[str, str]) -> tuple[bool, int]:
        writer = code.last_write_before(instruction.operand(pair[1]), instruction)
        return (False, 0) if writer is None else (True, code.order.place(writer))

    return sorted(instruction.operation.in_place, key=written, reverse=True)
