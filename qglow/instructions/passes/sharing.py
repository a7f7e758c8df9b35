"""In-place execution: the result of an instruction takes the buffer of one of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.instructions.liveness import Usage, overlap
from qglow.instructions.passes.placement import Placement, place, why_not
from qglow.instructions.program import Instruction, Program


@dataclass(frozen=True)
class ShareBuffers(Pass[Program]):
    """An input that is read for the last time is computed in the buffer of the result.

    Each instruction reads before it writes, element by element, as its `in_place` pairs say;
    so an input may end in the read slot of the instruction whose write slot begins the result.
    """

    name: ClassVar[str] = "share-buffers"

    def run(self, ir: Program, log: PassLog) -> None:
        """Every instruction that can work in place, in order."""
        for instruction in list(ir.code):
            if instruction.operation.in_place and not log.exhausted:
                self._share(ir, instruction, log)

    def _share(self, program: Program, instruction: Instruction, log: PassLog) -> None:
        reasons = []
        for out_name, in_name in _latest_first(program, instruction):
            placement = Placement(instruction.operand(in_name), instruction.operand(out_name))
            reason = self._why_not(program, instruction, placement)
            if reason is None:
                name = placement.inner.name
                place(program, placement)
                log.applied(
                    f"%{instruction.name}", f"in place: %{name} is computed in %{placement.outer.name}"
                )
                return
            reasons.append(f"{in_name}: {reason}")
        log.refused(f"%{instruction.name}", "; ".join(reasons))

    @staticmethod
    def _why_not(program: Program, instruction: Instruction, placement: Placement) -> str | None:
        if placement.inner.type.size != placement.outer.type.size:
            return f"%{placement.inner.name} spreads over %{placement.outer.name}"
        usage, at = Usage(program), program.code.index(instruction)
        last = usage.last(placement.inner)
        if last is not None and last > at:
            return f"%{placement.inner.name} is read later by %{program.code[last].name}"
        for spec, buffer in instruction.operands():
            if buffer is placement.outer:
                continue
            if overlap(buffer, placement.outer):
                return f"{spec.name} already is memory of %{placement.outer.root.name}"
            paired = any(pair[1] == spec.name for pair in instruction.operation.in_place)
            if overlap(buffer, placement.source) and not (paired and buffer is placement.source):
                return f"{spec.name} reads %{buffer.name} out of step"
        return why_not(program, usage, placement, at)


def _latest_first(program: Program, instruction: Instruction) -> list[tuple[str, str]]:
    """The `in_place` pairs; first the input that was written last, whose writer may have an epilogue."""
    usage, at = Usage(program), program.code.index(instruction)

    def written(pair: tuple[str, str]) -> int:
        uses = usage.uses(instruction.operand(pair[1]))
        return max((use.index for use in uses if use.writes and use.index < at), default=-1)

    return sorted(instruction.operation.in_place, key=written, reverse=True)
