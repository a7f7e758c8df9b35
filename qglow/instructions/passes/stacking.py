"""Marking chains of data-parallel instructions that can run as one loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.instructions.liveness import Usage, overlap, same_place
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, FillPadding, TensorView
from qglow.instructions.program import BufferKind, Instruction, Program


@dataclass(frozen=True)
class StackDataParallel(Pass[Program]):
    """Neighbours that are data-parallel, of one shape, and linked by a value get one stack number.

    Allocations between them move before the stack and deallocations behind it, so that memory
    is planned as if the stack were one instruction.
    """

    name: ClassVar[str] = "stack"

    max_length: int = 8

    def run(self, ir: Program, log: PassLog) -> None:
        """Grow a stack from every instruction that is in none."""
        number = next_stack(ir)
        for instruction in list(ir.code):
            if log.exhausted:
                return
            if instruction.stack is not None or not instruction.operation.data_parallel:
                continue
            stack = self._grow(ir, instruction)
            if len(stack) < 2:
                continue
            make_stack(ir, stack, number)
            number += 1
            log.applied(f"%{instruction.name}", "stacked with " + ", ".join(f"%{i.name}" for i in stack[1:]))

    def _grow(self, program: Program, first: Instruction) -> list[Instruction]:
        stack = [first]
        for instruction in program.code[program.code.index(first) + 1 :]:
            if not instruction.operation.touches_memory:
                continue
            if len(stack) == self.max_length or not _joins(stack, instruction):
                break
            stack.append(instruction)
        return stack


def _joins(stack: list[Instruction], instruction: Instruction) -> bool:
    """Whether a loop over all of them computes what one after the other does."""
    if not instruction.operation.data_parallel or instruction.stack is not None:
        return False
    if instruction.operand("dest").type.shape != stack[0].operand("dest").type.shape:
        return False
    linked = False
    for earlier in stack:
        for buffer in earlier.writes():
            for other, _ in instruction.accesses():
                if not overlap(buffer, other):
                    continue
                if not same_place(buffer, other):
                    return False
                linked = linked or other in instruction.reads()
        for buffer in earlier.reads():
            if any(overlap(buffer, w) and not same_place(buffer, w) for w in instruction.writes()):
                return False
    return linked


def next_stack(program: Program) -> int:
    """A number that no stack has yet."""
    return 1 + max((i.stack for i in program.code if i.stack is not None), default=-1)


def make_stack(program: Program, stack: list[Instruction], number: int) -> None:
    """Give neighbours a stack number; what stands between them goes before or behind the stack."""
    start, end = program.code.index(stack[0]), program.code.index(stack[-1]) + 1
    section = program.code[start:end]
    before = [i for i in section if isinstance(i.operation, AllocActivation | FillPadding | TensorView)]
    behind = [i for i in section if isinstance(i.operation, DeallocActivation)]
    program.code[start:end] = [*before, *stack, *behind]
    for member in stack:
        member.stack = number


def stacks(program: Program) -> list[list[Instruction]]:
    """The code that touches memory in order, stacked instructions together."""
    groups: list[list[Instruction]] = []
    for instruction in program.code:
        if not instruction.operation.touches_memory:
            continue
        joins = groups and instruction.stack is not None and groups[-1][-1].stack == instruction.stack
        if joins:
            groups[-1].append(instruction)
        else:
            groups.append([instruction])
    return groups


def is_internal(usage: Usage, stack: list[Instruction], index: int) -> bool:
    """Whether only members of the stack touch the result of `stack[index]`, so that no store is needed."""
    dest = stack[index].operand("dest")
    if dest.root.kind is not BufferKind.ACTIVATION:
        return False
    members = set(map(id, stack))
    return all(id(use.instruction) in members for use in usage.uses(dest))
