"""Memory planning: one arena for all activations.

Offline placement with the whole allocation list known: buffers are placed one after the other
in several orders, each in the tightest gap between those that live at the same time. The
largest sum of live buffers is a lower bound; planning stops when an order reaches it.
Compare: Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from qglow.instructions.liveness import Interval, intervals, unstored
from qglow.instructions.program import Program

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""

SLACK = 128
"""Bytes at the arena's end that kernels may read (never write) past a buffer."""


SEARCHES, MOST_SEARCHED = 40, 400
"""Orders that are tried where none of `ORDERS` reaches the bound, and most buffers for which they are."""


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """An activation's place: bytes it takes, its offset, and instruction indices it lives between."""

    name: str
    size: int
    offset: int
    start: int
    end: int


@dataclass(frozen=True)
class MemoryPlan:
    """Result of planning. `used` bytes are the arena without slack, `bound` the most live at once."""

    used: int
    bound: int
    order: str
    entries: tuple[PlannedBuffer, ...]

    def report(self) -> str:
        """A table for people, with the total last."""
        rows = [("offset", "size", "lives", "buffer")]
        for entry in sorted(self.entries, key=lambda e: (e.offset, e.start)):
            rows.append((str(entry.offset), str(entry.size), f"{entry.start}..{entry.end}", f"%{entry.name}"))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=False)) for row in rows]
        table = [f"{line}  {row[3]}" for line, row in zip(lines, rows, strict=True)]
        ratio = self.used / self.bound if self.bound else 1.0
        table.append(
            f"used {self.used} bytes, bound {self.bound}, used/bound {ratio:.3f}, order {self.order}"
        )
        return "\n".join(table) + "\n"


def plan_memory(program: Program, reuse: bool = True) -> MemoryPlan:
    """Give every activation that needs memory its `arena_offset` and the program its `arena_size`.

    Programs inside of instructions are planned first: their memory is scratch of the instruction. Without
    `reuse` every activation has memory of its own, so that it can be read after a run.
    """
    plan_inside(program, lambda body: plan_memory(body, reuse))
    found = intervals(program)
    if not reuse:
        found = [replace(interval, start=0, end=len(program.code)) for interval in found]
    bound = live_bound(found)
    used, order, offsets = _best(found, bound) if reuse else (bound, "size", _side_by_side(found))
    for interval, offset in zip(found, offsets, strict=True):
        interval.buffer.arena_offset = offset
    for buffer in unstored(program):
        buffer.arena_offset = None
    program.arena_size = used + SLACK if found else 0
    entries = tuple(
        PlannedBuffer(i.buffer.name, i.buffer.byte_size, offset, i.start, i.end)
        for i, offset in zip(found, offsets, strict=True)
    )
    return MemoryPlan(used, bound, order, entries)


def plan_inside(program: Program, plan: Callable[[Program], object]) -> None:
    """Plan the programs inside of instructions, and give these as much scratch memory as that takes."""
    for instruction in program.code:
        operation = instruction.operation
        if operation.body_names:
            for body in operation.bodies:
                plan(body)
            scratch = instruction.operand("scratch")
            scratch.type = scratch.type.with_shape((operation.inside_bytes,))


def program_memory(program: Program) -> int:
    """Bytes that running a planned program takes: its arena, constants, state, inputs and outputs."""
    return (program.arena_size or 0) + sum(
        b.byte_size for b in (*program.all_constants(), *program.placeholders)
    )


def _best(found: Sequence[Interval], bound: int) -> tuple[int, str, list[int]]:
    """Bytes that the best order needs (of equal ones the first), its name, and the offsets."""
    neighbours = _neighbours(found)
    best: tuple[int, str, list[int]] | None = None
    for name, key in ORDERS.items():
        order = sorted(range(len(found)), key=lambda i: key(found[i]))
        offsets = place_in_order(found, order, neighbours)
        used = max((o + padded_size(i) for o, i in zip(offsets, found, strict=True)), default=0)
        if best is None or used < best[0]:
            best = (used, name, offsets)
        if used == bound:
            break
    assert best is not None
    if best[0] == bound or len(found) > MOST_SEARCHED:
        return best
    return _searched(found, bound, neighbours, best)


def _searched(
    found: Sequence[Interval],
    bound: int,
    neighbours: Sequence[Sequence[int]],
    best: tuple[int, str, list[int]],
) -> tuple[int, str, list[int]]:
    """Place again and again, each time with the buffer that ended highest placed earlier; keep the best."""
    order = sorted(range(len(found)), key=lambda i: ORDERS["size"](found[i]))
    for turn in range(SEARCHES):
        offsets = place_in_order(found, order, neighbours)
        used = max((o + padded_size(i) for o, i in zip(offsets, found, strict=True)), default=0)
        if used < best[0]:
            best = (used, "search", offsets)
        if used == bound:
            break
        highest = max(range(len(found)), key=lambda i: offsets[i] + padded_size(found[i]))
        order.remove(highest)
        order.insert(turn * len(order) // (2 * SEARCHES), highest)
    return best


def _side_by_side(found: Sequence[Interval]) -> list[int]:
    """Offsets of buffers that all live from start to end, the largest first."""
    offsets, free = [0] * len(found), 0
    for index in sorted(range(len(found)), key=lambda i: ORDERS["size"](found[i])):
        size = padded_size(found[index])
        if size:
            offsets[index] = free
        free += size
    return offsets


def padded_size(interval: Interval) -> int:
    """Bytes that a buffer blocks: its size rounded up to the alignment."""
    return -(-interval.buffer.byte_size // ALIGNMENT) * ALIGNMENT


def live_bound(found: Sequence[Interval]) -> int:
    """The most bytes that live at one time: no plan is smaller."""
    changes: dict[int, int] = {}
    for interval in found:
        changes[interval.start] = changes.get(interval.start, 0) + padded_size(interval)
        changes[interval.end] = changes.get(interval.end, 0) - padded_size(interval)
    live = most = 0
    for time in sorted(changes):
        live += changes[time]
        most = max(most, live)
    return most


def _neighbours(found: Sequence[Interval]) -> list[list[int]]:
    """Indices, for each interval, of the others that live at the same time."""
    neighbours: list[list[int]] = [[] for _ in found]
    live: list[int] = []
    for index in sorted(range(len(found)), key=lambda i: found[i].start):
        interval = found[index]
        live = [other for other in live if found[other].end > interval.start]
        for other in live:
            if found[other].overlaps(interval):
                neighbours[index].append(other)
                neighbours[other].append(index)
        live.append(index)
    return neighbours


def place_in_order(
    found: Sequence[Interval], order: Sequence[int], neighbours: Sequence[Sequence[int]] | None = None
) -> list[int]:
    """Offsets of `found`, each placed in its turn in the tightest gap that it fits.

    neighbours: for each, the others that live at the same time; computed if None.
    """
    neighbours = _neighbours(found) if neighbours is None else neighbours
    offsets: list[int | None] = [None] * len(found)
    for index in order:
        placed = [(offsets[other], other) for other in neighbours[index]]
        taken = sorted((o, o + padded_size(found[other])) for o, other in placed if o is not None)
        offsets[index] = _tightest_gap(taken, padded_size(found[index]))
    return [offset for offset in offsets if offset is not None]


def _tightest_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap of at least `size` bytes; else the end of everything."""
    best: tuple[int, int] | None = None
    free = 0
    for start, end in taken:
        gap = start - free
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, free)
        free = max(free, end)
    return best[1] if best is not None else free


def _lifetime(interval: Interval) -> int:
    return interval.end - interval.start


ORDERS: dict[str, Callable[[Interval], tuple[int, ...]]] = {
    "size": lambda i: (-padded_size(i), i.start),
    "start": lambda i: (i.start, -padded_size(i)),
    "size x lifetime": lambda i: (-padded_size(i) * _lifetime(i), i.start),
    "lifetime": lambda i: (-_lifetime(i), -padded_size(i), i.start),
    "end": lambda i: (-i.end, -padded_size(i)),
    "size, last first": lambda i: (-padded_size(i), -i.start),
    "start, last first": lambda i: (-i.start, -padded_size(i)),
}
"""Sort keys of the orders in which buffers are placed."""
