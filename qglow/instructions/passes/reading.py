"""Reading of a copied value at its original place, so that the copy is not needed."""

from __future__ import annotations

from qglow.core.types import Shape
from qglow.instructions.liveness import overlap, touched
from qglow.instructions.passes.code import Code
from qglow.instructions.program import NO_PADDING, Buffer, BufferKind, Instruction


def why_not_read(code: Code, dest: Buffer, src: Buffer, offsets: Shape, at: Instruction) -> str | None:
    """Reason why `dest`, copied at `at` from `src`, cannot become a view of it; None if it can."""
    if dest.kind is not BufferKind.ACTIVATION or dest.padding != NO_PADDING:
        return f"%{dest.name} is no plain activation"
    if not offsets:
        return "a value without axes has no views"
    others = [touch for touch in code.touches(dest) if touch.instruction is not at]
    if any(touch.writes for touch in others):
        return f"%{dest.name} is written by others too"
    view = Buffer(dest.name, dest.type, BufferKind.VIEW, base=src, offsets=offsets)
    if not view.is_contiguous:
        strict = [touch.instruction.name for touch in others if not touch.operand.strided]
        reshapes = [v.name for v in code.views(dest) if not v.offsets]
        if strict or reshapes:
            return f"%{(strict + reshapes)[0]} needs %{dest.name} contiguous"
    last = code.last(dest)
    if last is None or not code.precedes(at, last):
        return None
    for touch in code.touches_within(src, at, last):
        if touch.instruction is at or not touch.writes:
            continue
        if overlap(view, touched(touch.instruction, touch.operand, touch.buffer)):
            return f"%{touch.instruction.name} changes the original before the last use of the copy"
    return None


def read_in_place(code: Code, copying: Instruction, dest: Buffer, src: Buffer, offsets: Shape) -> None:
    """Make `dest` a view of `src`, or `src` itself, in place of `copying`; its own views move behind that."""
    views, made = code.views(dest), None
    if dest.type == src.type:
        src = code.replace_buffer(dest, src)
    else:
        made = code.turn_into_view(dest, src, offsets)
    behind = code.order.next(copying)
    code.remove(copying)
    if made is not None:
        code.move_before(behind, made)
    for view in views:
        found = code.declaration(view)
        if found is not None and _goes_behind(code, found, behind):
            code.move_before(behind, found)
    code.deallocate_after_last_use(src)


def _goes_behind(code: Code, declaration: Instruction, behind: Instruction | None) -> bool:
    """Whether a declaration comes before the instruction before `behind`."""
    return code.order.next(declaration) is not behind and (
        behind is None or code.precedes(declaration, behind)
    )
