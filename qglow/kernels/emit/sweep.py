"""Vector loops over equally shaped operands with any strides, tails included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext

from qglow.kernels.emit.builder import Index, Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.operand import Memory, RunLoops, contiguous_runs

FEW_PLANES = 4
"""Threads share runs, not outer loops, if the longest of these has at most this many iterations."""
LARGE_PLANE = 4096
"""Elements from which on each of at most `FEW_PLANES` planes is a run of its own."""
FLAT_TURNS = 2
"""Runs of at most this many iterations of the inner loop get none."""

Body = Callable[[list[Value], int | None], None]
"""Emits the code for one vector: gets its address in each operand, and how many lanes count (None: all)."""


def sweep(e: Emitter, memories: Sequence[Memory], lanes: int, body: Body) -> None:
    """Emit `body` for every vector of `lanes` elements; all memories have one shape.

    A memory that repeats one element always passes the address of that element. Threads share the longest
    of the outer loops, or the contiguous run where these loops are short.
    """
    sizes = [memory.element_bytes for memory in memories]
    if 0 in memories[0].shape:
        return
    steps = [0 if m.repeats else size for m, size in zip(memories, sizes, strict=True)]
    runs = cut_at_live(e, _runs(memories, sizes), steps)
    by_run = max((extent for extent, _ in runs.outer), default=1) <= FEW_PLANES
    widths = nested_widths(runs.outer, runs.length)
    with outer_loops(e, [m.pointer for m in memories], runs.outer, not by_run, widths) as pointers:
        sweep_run(e, pointers, steps, runs.length, lanes, body, shared=by_run, is_live=True)


def cut_at_live(e: Emitter, runs: RunLoops, steps: Sequence[int]) -> RunLoops:
    """Loops of which one begins where live places count from 0 again, if that is inside of a loop or run.

    steps: bytes between elements of a run, for each operand.
    """
    period = e.live_period
    if period is None:
        return runs
    length, loops, elements = runs.length, list(runs.outer), runs.length
    if length > period and length % period == 0:
        loops.append((length // period, tuple(step * period for step in steps)))
        length = elements = period
    cut: list[tuple[int, tuple[int, ...]]] = []
    for extent, moved in reversed(loops):
        inside = period // elements
        if period % elements == 0 and 1 < inside < extent and extent % inside == 0:
            cut.append((inside, moved))
            cut.append((extent // inside, tuple(step * inside for step in moved)))
        else:
            cut.append((extent, moved))
        elements *= extent
    return RunLoops(tuple(reversed(cut)), length)


def _runs(memories: Sequence[Memory], sizes: Sequence[int]) -> RunLoops:
    """Runs that are contiguous in all memories; a few large planes are not merged into one.

    So threads share the pixels of every plane, and find these pixels in their caches when the planes are
    interleaved afterwards.
    """
    shape, strides = memories[0].shape, [memory.strides for memory in memories]
    runs = contiguous_runs(shape, strides, sizes)
    axis = next((axis for axis, extent in enumerate(shape) if extent > 1), len(shape))
    if runs.outer or axis == len(shape):
        return runs
    planes, length = shape[axis], runs.length // shape[axis]
    if planes > FEW_PLANES or length < LARGE_PLANE:
        return runs
    step = tuple(s[axis] * size for s, size in zip(strides, sizes, strict=True))
    return RunLoops(((planes, step),), length)


def nested_widths(outer: Sequence[tuple[int, tuple[int, ...]]], inside: int) -> list[int]:
    """Elements of the result in a turn of each loop, where `inside` are those in a turn of the innermost."""
    widths: list[int] = []
    for extent, _ in reversed(outer):
        widths.append(inside)
        inside *= extent
    return widths[::-1]


@contextmanager
def outer_loops(
    e: Emitter,
    pointers: Sequence[Value],
    outer: Sequence[tuple[int, tuple[int, ...]]],
    shared: bool = False,
    widths: Sequence[int] = (),
) -> Iterator[list[Value]]:
    """Nested loops that move every pointer by its stride in bytes; yields the moved pointers.

    `shared`: threads share the longest of the loops, if there is any. widths: elements of the result in a
    turn of each loop, which then leaves out what is not live; empty to run all.
    """
    moved = list(pointers)
    longest = max(range(len(outer)), key=lambda number: outer[number][0]) if shared and outer else -1
    with ExitStack() as stack:
        for number, (extent, steps) in enumerate(outer):
            first, end = e.share(extent, number == longest)
            if widths:
                end = e.minimum(end, e.live_pieces(extent, widths[number], extent * widths[number]))
            index = stack.enter_context(e.loop(first, end, name="outer"))
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
    is_live: bool = False,
) -> None:
    """Emit `body` over one run of `length` elements, which are `sizes[i]` bytes apart in operand i.

    A long run is a loop of as many vectors an iteration as the target says, a short one straight-line code;
    the last vector may be partial. `shared`: threads share whole unrolled blocks, and the last thread also
    does the remainder. `is_live`: elements are those of the result, and blocks without live ones are
    left out.
    """

    def at(element: Index) -> list[Value]:
        return [e.offset(p, e.scaled(element, size)) for p, size in zip(pointers, sizes, strict=True)]

    whole = length // lanes * lanes
    unroll = e.target.loop_unroll
    block = lanes * unroll
    blocked = whole // block * block if whole > block * FLAT_TURNS else 0
    if blocked:
        first, last = e.share(blocked // block, shared)
        if is_live:
            last = e.minimum(last, e.live_pieces(blocked // block, block, length))
        with e.loop(e.scaled(first, block), e.scaled(last, block), block, "block") as start:
            for part in range(unroll):
                body(at(e.plus(start, part * lanes)), None)
    if blocked == length:
        return
    with e.last_share() if blocked and shared else nullcontext():
        for start in range(blocked, whole, lanes):
            body(at(start), None)
        if length > whole:
            body(at(whole), length - whole)
