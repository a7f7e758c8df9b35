"""Small edits of the code that passes share; none of them asks whether it is allowed."""

from __future__ import annotations

from qglow.instructions.liveness import Usage
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, TensorView
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program


def declaration(program: Program, buffer: Buffer) -> Instruction | None:
    """The allocation or tensorview that makes `buffer`; None for constants and placeholders."""
    for instruction in program.code:
        declares = isinstance(instruction.operation, AllocActivation | TensorView)
        if declares and instruction.buffers[0] is buffer:
            return instruction
    return None


def deallocation(program: Program, buffer: Buffer) -> Instruction | None:
    """The deallocation of this very buffer."""
    for instruction in program.code:
        if isinstance(instruction.operation, DeallocActivation) and instruction.buffers[0] is buffer:
            return instruction
    return None


def remove(program: Program, instruction: Instruction | None) -> None:
    """Take an instruction out, if there is one."""
    if instruction is not None:
        program.code.remove(instruction)


def replace_buffer(program: Program, old: Buffer, new: Buffer) -> None:
    """Every operand and base `old` becomes `new`; `old` loses its declaration and deallocation."""
    remove(program, declaration(program, old))
    remove(program, deallocation(program, old))
    for instruction in program.code:
        instruction.buffers = tuple(new if b is old else b for b in instruction.buffers)
        made = instruction.buffers[0] if isinstance(instruction.operation, TensorView) else None
        if made is not None and made.base is old:
            made.base = new


def turn_into_view(program: Program, buffer: Buffer, base: Buffer, offsets: tuple[int, ...]) -> None:
    """An activation becomes a view; its allocation becomes a tensorview at the same place."""
    remove(program, deallocation(program, buffer))
    allocation = declaration(program, buffer)
    assert allocation is not None
    buffer.kind, buffer.base, buffer.offsets = BufferKind.VIEW, base, offsets
    allocation.operation, allocation.buffers = TensorView(offsets), (buffer, base)


def declare_before(program: Program, buffer: Buffer, position: int) -> int:
    """Move the declarations of `buffer` and its bases to before `position`; returns how many."""
    chain: list[Instruction] = []
    current: Buffer | None = buffer
    while current is not None:
        found = declaration(program, current)
        if found is not None and program.code.index(found) >= position:
            chain.append(found)
        current = current.base
    for instruction in chain:
        program.code.remove(instruction)
    program.code[position:position] = reversed(chain)
    return len(chain)


def deallocate_after_last_use(program: Program, buffer: Buffer) -> None:
    """Move the deallocation of the buffer's root to after everything that touches it, if it is earlier."""
    found = deallocation(program, buffer.root)
    if found is None:
        return
    usage = Usage(program)
    places = [usage.last(buffer), *(usage.declared(view) for view in usage.views(buffer))]
    last = max((p for p in places if p is not None), default=-1)
    index = program.code.index(found)
    if index < last:
        program.code.insert(last, program.code.pop(index))
