"""Windows of pooling: which taps lie inside the image, and how they are combined.

Positions whose windows reach over the same taps form one segment of an axis and share one loop, so no
padding is ever read and no index is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from qglow.kernels.emit.builder import Index, Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Site
from qglow.kernels.emit.operand import Memory


@dataclass(frozen=True, slots=True)
class Segment:
    """Positions start..stop of one axis whose windows cover taps first..last (exclusive) of the image.

    `padded` is how many taps lie in the image or in its padding.
    """

    start: int
    stop: int
    first: int
    last: int
    padded: int


def segments(
    extent: int, size: int, kernel: int, stride: int, pads: tuple[int, int], dilation: int = 1
) -> list[Segment]:
    """The positions of an axis of `size` elements, grouped by the taps inside the image.

    `pads` are those before and after the image.
    """
    found: list[Segment] = []
    for position in range(extent):
        origin = position * stride - pads[0]
        # The first tap at or beyond each end: the padding's, the image's, the image's, the padding's.
        ends = (origin + pads[0], origin, origin - size, origin - size - pads[1])
        before, first, last, beyond = (min(max(0, -(end // dilation)), kernel) for end in ends)
        taps = (first, last, beyond - before)
        if found and (found[-1].first, found[-1].last, found[-1].padded) == taps:
            found[-1] = Segment(found[-1].start, position + 1, *taps)
        else:
            found.append(Segment(position, position + 1, *taps))
    return found


@dataclass(frozen=True)
class Window:
    """The taps of one segment pair, for one vector of channels at `origin` (tap 0, 0)."""

    e: Emitter
    src: Memory
    origin: Value
    rows: Segment
    columns: Segment
    kernel_width: int
    dilations: tuple[int, int]
    lanes: int
    count: int | None
    most_taps: int

    @property
    def taps(self) -> int:
        """Taps inside the image."""
        return (self.rows.last - self.rows.first) * (self.columns.last - self.columns.first)

    def tap(self, row: Index, column: int) -> Value:
        """Load the vector of channels at a tap."""
        pairs = zip(self.src.strides[1:3], self.dilations, strict=True)
        steps = [stride * dilation * self.src.element_bytes for stride, dilation in pairs]
        pointer = self.e.offset(self.origin, self.e.scaled(row, steps[0]))
        pointer = self.e.offset(pointer, column * steps[1])
        return self.e.load_lanes(pointer, self.src.element, self.lanes, self.count)

    def fold(
        self, initial: list[Value], step: Callable[[list[Value], int, Value], list[Value]], period: int = 1
    ) -> list[Value]:
        """`values = step(values, index mod period, tap)` over all taps in ascending order.

        `index` is `row * kernel width + column`. More than `most_taps` taps become a loop. An iteration takes
        as many rows as bring the index back to 0 modulo `period`, so that `step` gets it as a constant.
        """
        values, e = list(initial), self.e
        first, last = self.rows.first, self.rows.last
        group = period // math.gcd(period, self.kernel_width)
        looped = (last - first) // group * group if self.taps > self.most_taps else 0
        if looped > group:
            with e.carrying_loop(first, first + looped, values, group, "row") as carry:
                inside = list(carry.values)
                for row in range(group):
                    number = first + row
                    inside = self._row(inside, step, period, e.plus(carry.index, row), number)
                carry.next(inside)
            values, first = carry.values, first + looped
        for row in range(first, last):
            values = self._row(values, step, period, row, row)
        return values

    def _row(
        self,
        values: list[Value],
        step: Callable[[list[Value], int, Value], list[Value]],
        period: int,
        row: Index,
        number: int,
    ) -> list[Value]:
        for column in range(self.columns.first, self.columns.last):
            index = (number * self.kernel_width + column) % period
            values = step(values, index, self.tap(row, column))
        return values


def segment_pairs(site: Site) -> Iterator[tuple[Segment, Segment]]:
    """Every segment of rows with every segment of columns, of a pooling instruction."""
    operation, src, dest = site.operation, site["src"].shape, site["dest"].shape
    rows, columns = (
        segments(
            dest[1 + i],
            src[1 + i],
            operation.kernel[i],
            operation.strides[i],
            (operation.pads[i], operation.pads[i + 2]),
            operation.dilations[i],
        )
        for i in (0, 1)
    )
    for row in rows:
        for column in columns:
            yield row, column
