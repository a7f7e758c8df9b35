"""Placement of one buffer in the memory of another, so that no copy between them is needed.

At instruction `at`, an `inner` activation (as it is or reshaped) is copied element by element into an
`outer` buffer or a slice of it. If nothing else needs that memory meanwhile, the inner buffer can be
there from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass

from qglow.core.types import Shape
from qglow.instructions.liveness import overlap, touched
from qglow.instructions.passes.code import Code
from qglow.instructions.program import NO_PADDING, Buffer, BufferKind, Instruction


@dataclass(frozen=True)
class Placement:
    """Placement of `source` in `outer` at `offsets`; without offsets the shapes are equal."""

    source: Buffer
    outer: Buffer
    offsets: Shape = ()

    @property
    def inner(self) -> Buffer:
        """The activation that owns the source's memory."""
        return self.source.root

    @property
    def target(self) -> Buffer:
        """The inner buffer as the view of `outer` that it would become."""
        inner = self.inner
        offsets = self.offsets
        if not offsets and inner.type.shape == self.outer.type.shape:
            offsets = (0,) * len(inner.type.shape)
        return Buffer(inner.name, inner.type, BufferKind.VIEW, base=self.outer, offsets=offsets)


def why_not(code: Code, placement: Placement, at: Instruction) -> str | None:
    """The reason against a placement; None if it changes no result."""
    return _unfit(code, placement) or _unfit_layout(code, placement) or _busy(code, placement, at)


def _unfit(code: Code, placement: Placement) -> str | None:
    inner, outer, source = placement.inner, placement.outer, placement.source
    if inner.kind is not BufferKind.ACTIVATION:
        return f"%{inner.name} is no activation"
    if outer.root is inner:
        return f"%{outer.name} already is memory of %{inner.name}"
    if outer.root.kind not in (BufferKind.ACTIVATION, BufferKind.PLACEHOLDER) or outer.root in code.state:
        return f"%{outer.name} is not free to hold other values"
    if source is not inner and (source.offsets or source.type.size != inner.type.size):
        return f"%{source.name} is a part of %{inner.name}"
    if source is not inner and placement.offsets:
        return f"%{source.name} is a reshape, and a slice is not contiguous"
    if inner.padding != NO_PADDING:
        return f"%{inner.name} has padding"
    if inner.type.element is not outer.type.element:
        return "element types differ"
    return None


def _unfit_layout(code: Code, placement: Placement) -> str | None:
    """Reason why users of the inner buffer cannot use it at its new place; None if they can."""
    inner, target = placement.inner, placement.target
    if not target.offsets and target.type.shape and not placement.outer.is_contiguous:
        return f"%{placement.outer.name} is not contiguous"
    if target.is_contiguous:
        return None
    for view in code.views(inner):
        if not view.offsets:
            return f"%{view.name} reshapes %{inner.name}"
    for touch in code.touches(inner):
        if not touch.operand.strided:
            return f"%{touch.instruction.name} needs a contiguous {touch.operand.name}"
    return None


def _busy(code: Code, placement: Placement, at: Instruction) -> str | None:
    """Reason why the place is not free during the inner buffer's lifetime; None if it is."""
    inner, outer, target = placement.inner, placement.outer, placement.target
    first, last = code.first(inner), code.last(inner)
    if first is None or last is None or not code.precedes(first, at):
        return f"%{inner.name} is not written before"
    if code.precedes(at, last):
        for touch in code.touches_within(inner, at, last):
            if touch.writes and touch.instruction is not at:
                return f"%{inner.name} is changed later by %{touch.instruction.name}"
    for touch in code.touches_within(outer, first, last):
        if touch.instruction is at or (code.precedes(at, touch.instruction) and not touch.writes):
            continue
        if overlap(target, touched(touch.instruction, touch.operand, touch.buffer)):
            return f"%{touch.instruction.name} uses the place in %{outer.root.name} meanwhile"
    return None


def place(code: Code, placement: Placement) -> None:
    """Carry out a placement that `why_not` allowed. The caller removes the instruction that moved data."""
    inner, outer, target = placement.inner, placement.outer, placement.target
    found = code.declaration(inner)
    assert found is not None
    code.declare_before(outer, found)
    if inner.type == outer.type:
        outer = code.replace_buffer(inner, outer)
    else:
        code.turn_into_view(inner, outer, target.offsets)
    code.deallocate_after_last_use(outer)
