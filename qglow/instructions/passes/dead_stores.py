"""Removing what computes nothing that is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.instructions.operation import Access
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, TensorView
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program


@dataclass(frozen=True)
class DeadStores(Pass[Program]):
    """Instructions whose results nobody reads, then views, activations and constants without users."""

    name: ClassVar[str] = "dead-stores"

    def run(self, ir: Program, log: PassLog) -> None:
        """One walk from the end for instructions, then declarations until none goes."""
        self._remove_instructions(ir, log)
        while self._remove_declaration(ir, log):
            pass
        used = {buffer for instruction in ir.code for buffer, _ in instruction.accesses()}
        for constant in [c for c in ir.constants if c not in used]:
            if log.exhausted:
                return
            ir.constants.remove(constant)
            log.applied(f"%{constant.name}", "removed a constant that nobody reads")

    def _remove_instructions(self, program: Program, log: PassLog) -> None:
        needed: set[Buffer] = set(program.outputs()) | set(program.state())
        for instruction in reversed(list(program.code)):
            if not instruction.operation.touches_memory:
                continue
            if not log.exhausted and self._is_dead(instruction, needed):
                program.code.remove(instruction)
                log.applied(
                    f"%{instruction.name}", f"removed {instruction.operation.opcode}: results not read"
                )
                continue
            for buffer, access in instruction.accesses():
                if access is Access.OUT and buffer.base is None:
                    needed.discard(buffer)
            needed.update(buffer.root for buffer in instruction.reads())

    @staticmethod
    def _is_dead(instruction: Instruction, needed: set[Buffer]) -> bool:
        return not any(buffer.root in needed for buffer in instruction.writes())

    @staticmethod
    def _remove_declaration(program: Program, log: PassLog) -> bool:
        """Remove one view or activation that nothing but its declaration names."""
        users: dict[Buffer, int] = {}
        for instruction in program.code:
            if isinstance(instruction.operation, DeallocActivation):
                continue
            for buffer, _ in instruction.accesses():
                users[buffer] = users.get(buffer, 0) + 1
        for buffer in [b for b, count in users.items() if count == 1]:
            declared = buffer.kind in (BufferKind.ACTIVATION, BufferKind.VIEW)
            if not declared or log.exhausted:
                continue
            program.code[:] = [i for i in program.code if not _is_about(i, buffer)]
            log.applied(f"%{buffer.name}", f"removed {buffer.kind.value} that nobody uses")
            return True
        return False


def _is_about(instruction: Instruction, buffer: Buffer) -> bool:
    memory = AllocActivation | DeallocActivation | TensorView
    return isinstance(instruction.operation, memory) and instruction.buffers[0] is buffer
