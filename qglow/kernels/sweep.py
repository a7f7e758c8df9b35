"""Vector loops over equally shaped operands with any strides, tails included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext

from qglow.kernels.builder import Emitter, Index, Value
from qglow.kernels.operand import Memory, contiguous_runs

UNROLL = 4
FLAT_CHUNKS = 8
"""Runs of at most this many vectors get no inner loop."""

Body = Callable[[list[Value], int | None], None]
"""Handles one vector: pointers of all operands, and how many lanes count (None: all)."""


def sweep(e: Emitter, memories: Sequence[Memory], lanes: int, body: Body) -> None:
    """Call `body` for every vector of `lanes` elements; all memories have one shape.

    The pointer of a memory that repeats is that of the one element. Threads share the longest of
    the outer loops, or the run where there is none.
    """
    sizes = [memory.element_bytes for memory in memories]
    runs = contiguous_runs(memories[0].shape, [m.strides for m in memories], sizes)
    if 0 in memories[0].shape:
        return
    steps = [0 if m.repeats else size for m, size in zip(memories, sizes, strict=True)]
    with outer_loops(e, [m.pointer for m in memories], runs.outer, shared=True) as pointers:
        sweep_run(e, pointers, steps, runs.length, lanes, body, shared=not runs.outer)


@contextmanager
def outer_loops(
    e: Emitter,
    pointers: Sequence[Value],
    outer: Sequence[tuple[int, tuple[int, ...]]],
    shared: bool = False,
) -> Iterator[list[Value]]:
    """Nested loops that move every pointer by its stride in bytes; yields the moved pointers.

    `shared`: threads share the longest of the loops, if there is any.
    """
    moved = list(pointers)
    longest = max(range(len(outer)), key=lambda number: outer[number][0]) if shared and outer else -1
    with ExitStack() as stack:
        for number, (extent, steps) in enumerate(outer):
            share = e.share(extent, number == longest)
            index = stack.enter_context(e.loop(*share, name="outer"))
            moved = [e.offset(p, e.scaled(index, step)) for p, step in zip(moved, steps, strict=True)]
        yield moved


def sweep_run(
    e: Emitter,
    pointers: Sequence[Value],
    sizes: Sequence[int],
    length: int,
    lanes: int,
    body: Body,
    shared: bool = False,
) -> None:
    """`body` over one run of `length` elements that lie `sizes` bytes apart in the operands.

    `shared`: threads share whole blocks of it; the last one does the rest too.
    """

    def at(element: Index) -> list[Value]:
        return [e.offset(p, e.scaled(element, size)) for p, size in zip(pointers, sizes, strict=True)]

    whole = length // lanes * lanes
    block = lanes * UNROLL
    blocked = whole // block * block if whole > lanes * FLAT_CHUNKS else 0
    if blocked:
        first, last = e.share(blocked // block, shared)
        with e.loop(e.scaled(first, block), e.scaled(last, block), block, "block") as start:
            for part in range(UNROLL):
                body(at(e.plus(start, part * lanes)), None)
    if blocked == length:
        return
    with e.last_share() if blocked and shared else nullcontext():
        for start in range(blocked, whole, lanes):
            body(at(start), None)
        if length > whole:
            body(at(whole), length - whole)
