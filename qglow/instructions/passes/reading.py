"""Reading a copied value where its original is, so that the copy is not needed."""

from __future__ import annotations

from qglow.core.types import Shape
from qglow.instructions.liveness import Usage, overlap, touched
from qglow.instructions.passes.editing import (
    deallocate_after_last_use,
    declaration,
    replace_buffer,
    turn_into_view,
)
from qglow.instructions.program import NO_PADDING, Buffer, BufferKind, Instruction, Program


def why_not_read(usage: Usage, dest: Buffer, src: Buffer, offsets: Shape, at: int) -> str | None:
    """The reason against `dest`, copied at `at` from `src`, becoming a view of it; None if none."""
    if dest.kind is not BufferKind.ACTIVATION or dest.padding != NO_PADDING:
        return f"%{dest.name} is no plain activation"
    if not offsets:
        return "a value without axes has no views"
    others = [use for use in usage.uses(dest) if use.index != at]
    if any(use.writes for use in others):
        return f"%{dest.name} is written by others too"
    view = Buffer(dest.name, dest.type, BufferKind.VIEW, base=src, offsets=offsets)
    if not view.is_contiguous:
        strict = [use.instruction.name for use in others if not use.operand.strided]
        reshapes = [v.name for v in usage.views(dest) if not v.offsets]
        if strict or reshapes:
            return f"%{(strict + reshapes)[0]} needs %{dest.name} contiguous"
    last = usage.last(dest)
    for use in usage.writes_between(src, at + 1, at if last is None else last + 1):
        if overlap(view, touched(use.instruction, use.operand, use.buffer)):
            return f"%{use.instruction.name} changes the original before the last use of the copy"
    return None


def read_in_place(program: Program, copying: Instruction, dest: Buffer, src: Buffer, offsets: Shape) -> None:
    """Make `dest` a view of `src`, or `src` itself, where `copying` was; views of it move behind."""
    views = Usage(program).views(dest)
    made = _declare_as(program, dest, src, offsets)
    position = program.code.index(copying)
    program.code[position : position + 1] = made
    position += len(made) - 1
    for view in views:
        found = declaration(program, view)
        if found is not None and program.code.index(found) < position:
            program.code.remove(found)
            program.code.insert(position, found)
    deallocate_after_last_use(program, src)


def _declare_as(program: Program, dest: Buffer, src: Buffer, offsets: Shape) -> list[Instruction]:
    """Take away the allocation of `dest`; what declares it as memory of `src` comes back."""
    if dest.type == src.type:
        replace_buffer(program, dest, src)
        return []
    turn_into_view(program, dest, src, offsets)
    made = declaration(program, dest)
    assert made is not None
    program.code.remove(made)
    return [made]
