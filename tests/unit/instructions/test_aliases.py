"""Which buffers are one another's memory, element by element."""

from __future__ import annotations

from qglow.core.types import float_type
from qglow.instructions.liveness import same_place
from qglow.instructions.program import Buffer, BufferKind


def view(base: Buffer, *shape: int, offsets: tuple[int, ...] = ()) -> Buffer:
    return Buffer("view", float_type(*shape), BufferKind.VIEW, base=base, offsets=offsets)


def test_strides_of_a_single_element_do_not_matter() -> None:
    """A slice of a batch of one, and a reshape of that slice there and back."""
    whole = Buffer("whole", float_type(1, 10, 2), BufferKind.ACTIVATION)
    part = view(whole, 1, 6, 2, offsets=(0, 0, 0))
    reshaped = view(view(part, 1, 2, 3, 2), 1, 6, 2)
    assert part.layout != reshaped.layout
    assert same_place(part, reshaped)


def test_other_starts_steps_and_shapes_are_other_places() -> None:
    whole = Buffer("whole", float_type(2, 10, 2), BufferKind.ACTIVATION)
    part = view(whole, 2, 5, 2, offsets=(0, 0, 0))
    assert not same_place(part, view(whole, 2, 5, 2, offsets=(0, 1, 0)))
    assert not same_place(part, view(view(whole, 1, 10, 2, offsets=(0, 0, 0)), 2, 5, 2))
    assert not same_place(part, view(whole, 1, 5, 2, offsets=(0, 0, 0)))
