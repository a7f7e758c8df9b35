"""Marking chains of data-parallel instructions that can run as one loop."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar

from qglow.core.ordered import Ordered
from qglow.core.passes import Pass, PassLog
from qglow.instructions.liveness import Usage, overlap, same_place
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, FillPadding, TensorView
from qglow.instructions.program import BufferKind, Instruction, Program


@dataclass(frozen=True)
class StackDataParallel(Pass[Program]):
    """Give neighbouring data-parallel instructions of one shape, linked by a value, one stack number.

    Allocations between them move before the stack and deallocations behind it, so that memory is planned
    as if the stack were one instruction.
    """

    name: ClassVar[str] = "stack"

    max_length: int = 8

    def run(self, ir: Program, log: PassLog) -> None:
        """Grow a stack from every instruction that is in none."""
        number, order = next_stack(ir), Ordered(ir.code)
        for instruction in ir.code:
            if log.exhausted:
                break
            if instruction.stack is not None or not instruction.operation.data_parallel:
                continue
            stack = self._grow(order, instruction)
            if len(stack) < 2:
                continue
            make_stack(order, stack, number)
            number += 1
            log.applied(f"%{instruction.name}", "stacked with " + ", ".join(f"%{i.name}" for i in stack[1:]))
        ir.code[:] = order

    def _grow(self, order: Ordered[Instruction], first: Instruction) -> list[Instruction]:
        stack = [first]
        for instruction in order.following(first):
            if not instruction.operation.touches_memory:
                continue
            if len(stack) == self.max_length or not _joins(stack, instruction):
                break
            stack.append(instruction)
        return stack


def _joins(stack: list[Instruction], instruction: Instruction) -> bool:
    """Whether one loop over all of them computes the same as one loop for each."""
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


def make_stack(order: Ordered[Instruction], stack: list[Instruction], number: int) -> None:
    """Give neighbours a stack number; move declarations between them before or behind the stack."""
    first, last = stack[0], stack[-1]
    behind = last
    for instruction in list(takewhile(lambda i: i is not last, order.following(first))):
        if isinstance(instruction.operation, AllocActivation | FillPadding | TensorView):
            order.remove(instruction)
            order.insert_before(first, instruction)
        elif isinstance(instruction.operation, DeallocActivation):
            order.remove(instruction)
            order.insert_after(behind, instruction)
            behind = instruction
    for member in stack:
        member.stack = number


def stacks(program: Program) -> list[list[Instruction]]:
    """The instructions that touch memory in order, grouped by stack; others are groups of one."""
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
    """Whether only members of the stack need the result of `stack[index]`, so that it is not stored.

    A later member may replace it in its place. What the memory held before were other values.
    """
    dest = stack[index].operand("dest")
    if any(same_place(dest, later.operand("dest")) for later in stack[index + 1 :]):
        return True
    if dest.root.kind is not BufferKind.ACTIVATION:
        return False
    members = set(map(id, stack))
    uses = usage.uses(dest)
    written = max(use.index for use in uses if use.instruction is stack[index])
    return all(id(use.instruction) in members for use in uses if use.index > written)
