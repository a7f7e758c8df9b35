"""Removal of instructions and buffers that no result needs."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.instructions.operation import Access
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, TensorView
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program


@dataclass(frozen=True)
class DeadStores(Pass[Program]):
    """Remove instructions whose results nobody reads, then views, activations and constants without users."""

    name: ClassVar[str] = "dead-stores"

    def run(self, ir: Program, log: PassLog) -> None:
        """Remove instructions in one walk from the end, then declarations until no more are unused."""
        self._remove_instructions(ir, log)
        self._remove_declarations(ir, log)
        used = {buffer for instruction in ir.code for buffer, _ in instruction.accesses()}
        kept: list[Buffer] = []
        for constant in ir.constants:
            if constant in used or log.exhausted:
                kept.append(constant)
            else:
                log.applied(f"%{constant.name}", "removed a constant that nobody reads")
        ir.constants[:] = kept

    def _remove_instructions(self, program: Program, log: PassLog) -> None:
        needed: set[Buffer] = set(program.outputs()) | set(program.state())
        dead: set[int] = set()
        for instruction in reversed(program.code):
            if not instruction.operation.touches_memory:
                continue
            if not log.exhausted and self._is_dead(instruction, needed):
                dead.add(id(instruction))
                what = f"removed {instruction.operation.opcode}: results not read"
                log.applied(f"%{instruction.name}", what)
                continue
            for buffer, access in instruction.accesses():
                if access is Access.OUT and buffer.base is None:
                    needed.discard(buffer)
            needed.update(buffer.root for buffer in instruction.reads())
        program.code[:] = [instruction for instruction in program.code if id(instruction) not in dead]

    @staticmethod
    def _is_dead(instruction: Instruction, needed: set[Buffer]) -> bool:
        return not any(buffer.root in needed for buffer in instruction.writes())

    @staticmethod
    def _remove_declarations(program: Program, log: PassLog) -> None:
        """Remove views and activations that only their declaration names, in the order of the code."""
        users: dict[Buffer, int] = {}
        for instruction in program.code:
            if not isinstance(instruction.operation, DeallocActivation):
                for buffer, _ in instruction.accesses():
                    users[buffer] = users.get(buffer, 0) + 1
        numbers = {buffer: number for number, buffer in enumerate(users)}
        unread = [(numbers[b], b) for b, count in users.items() if count == 1 and _is_declared(b)]
        gone: set[Buffer] = set()
        while unread and not log.exhausted:
            _, buffer = heappop(unread)
            gone.add(buffer)
            log.applied(f"%{buffer.name}", f"removed {buffer.kind.value} that nobody uses")
            base = buffer.base
            if base is not None:
                users[base] -= 1
                if users[base] == 1 and _is_declared(base):
                    heappush(unread, (numbers[base], base))
        program.code[:] = [i for i in program.code if not _is_about(i, gone)]


def _is_declared(buffer: Buffer) -> bool:
    return buffer.kind in (BufferKind.ACTIVATION, BufferKind.VIEW)


def _is_about(instruction: Instruction, buffers: set[Buffer]) -> bool:
    memory = AllocActivation | DeallocActivation | TensorView
    return isinstance(instruction.operation, memory) and instruction.buffers[0] in buffers
