"""Putting one buffer into the memory of another, so that a copy between them is not needed.

At instruction `at`, an `inner` activation (as it is or reshaped) goes element by element into
an `outer` buffer or a slice of it. If nothing else needs that memory meanwhile, the inner
buffer can live there from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass

from qglow.core.types import Shape
from qglow.instructions.liveness import Usage, overlap, touched
from qglow.instructions.passes.editing import (
    deallocate_after_last_use,
    declaration,
    declare_before,
    replace_buffer,
    turn_into_view,
)
from qglow.instructions.program import NO_PADDING, Buffer, BufferKind, Program


@dataclass(frozen=True)
class Placement:
    """`source` goes into `outer` at `offsets`; without offsets the shapes are equal."""

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


def why_not(program: Program, usage: Usage, placement: Placement, at: int) -> str | None:
    """The reason against a placement; None where it changes no result."""
    return _unfit(program, placement) or _unfit_layout(usage, placement) or _busy(usage, placement, at)


def _unfit(program: Program, placement: Placement) -> str | None:
    inner, outer, source = placement.inner, placement.outer, placement.source
    if inner.kind is not BufferKind.ACTIVATION:
        return f"%{inner.name} is no activation"
    if outer.root is inner:
        return f"%{outer.name} already is memory of %{inner.name}"
    if (
        outer.root.kind not in (BufferKind.ACTIVATION, BufferKind.PLACEHOLDER)
        or outer.root in program.state()
    ):
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


def _unfit_layout(usage: Usage, placement: Placement) -> str | None:
    """Whether what uses the inner buffer can use it where it would be."""
    inner, target = placement.inner, placement.target
    if not target.offsets and target.type.shape and not placement.outer.is_contiguous:
        return f"%{placement.outer.name} is not contiguous"
    if target.is_contiguous:
        return None
    for view in usage.views(inner):
        if not view.offsets:
            return f"%{view.name} reshapes %{inner.name}"
    for use in usage.uses(inner):
        if not use.operand.strided:
            return f"%{use.instruction.name} needs a contiguous {use.operand.name}"
    return None


def _busy(usage: Usage, placement: Placement, at: int) -> str | None:
    """Whether the place is used for something else while the inner buffer needs it."""
    inner, target = placement.inner, placement.target
    first, last = usage.first(inner), usage.last(inner)
    if first is None or last is None or first >= at:
        return f"%{inner.name} is not written before"
    late = usage.writes_between(inner, at + 1, last + 1)
    if late:
        return f"%{inner.name} is changed later by %{late[0].instruction.name}"
    for use in usage.uses(placement.outer):
        if use.index == at or not first <= use.index <= last:
            continue
        if use.index > at and not use.writes:
            continue
        if overlap(target, touched(use.instruction, use.operand, use.buffer)):
            return f"%{use.instruction.name} uses the place in %{placement.outer.root.name} meanwhile"
    return None


def place(program: Program, placement: Placement) -> None:
    """Do what `why_not` allowed. The instruction that moved the data is left to the caller."""
    inner, outer, target = placement.inner, placement.outer, placement.target
    found = declaration(program, inner)
    assert found is not None
    declare_before(program, outer, program.code.index(found))
    if inner.type == outer.type:
        replace_buffer(program, inner, outer)
    else:
        turn_into_view(program, inner, outer, target.offsets)
    deallocate_after_last_use(program, outer)
