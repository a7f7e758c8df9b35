"""Builder used by kernels: it knows the target, and divides a function's work among threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from qglow.core.types import TensorType
from qglow.kernels.emit.builder import I32, I64, Builder, Index, Value
from qglow.kernels.emit.live import LiveElements
from qglow.kernels.emit.target import VectorTarget


class Emitter(Builder):
    """Emits one function body for a target.

    A function whose work several threads may share has two i64 arguments: `part`, the number of the share
    that a call computes, and `parts`, the number of shares. `units` is how many equal pieces the work has.
    live: which elements of the results matter; None where these are all.
    """

    def __init__(
        self,
        function: Any,
        target: VectorTarget,
        part: Value | None = None,
        parts: Value | None = None,
        live: LiveElements | None = None,
    ) -> None:
        # Two registers for every counter are what 64 bits cost where an address has 32.
        super().__init__(function, I32 if target.pointer_bytes == I32.width // 8 else I64)
        self._live = live
        self.target = target
        self.units = 1
        self._part, self._parts = part, parts
        self._share: tuple[Index, Index] | None = None

    def share(self, units: int, shared: bool = True) -> tuple[Index, Index]:
        """Return the range (first, end) of `units` equal pieces of work that this call computes.

        Without `shared`, and in a function that is not divided, these are all pieces. All shared loops of a
        function have the same number of pieces; another number raises ValueError. Every store has to be in a
        shared loop, in `first_share` or in `last_share`, since every thread runs the code outside of them.
        """
        if self._part is None or not shared or units <= 1:
            return 0, units
        if self._share is None:
            self.units = units
            with self.b.goto_entry_block():
                following = self.b.add(self._part, self.index(1))
                self._share = self._bound(self._part), self._bound(following)
        if units != self.units:
            raise ValueError(f"{units} pieces of work, {self.units} before")
        return self._share

    def live_pieces(self, count: int, width: int, period: int, first: int = 0) -> Index:
        """Return how many of `count` pieces have live elements: the first ones, of `width` elements each.

        The pieces begin at element `first` of loops over `period` elements of the result.
        """
        return count if self._live is None else self._live.pieces(self, first, width, count, period)

    def live_images(self, kind: TensorType) -> Index:
        """Return how many of the first places along the outermost axis of the result, of `kind`, are live."""
        images = kind.shape[0]
        return self.live_pieces(images, kind.size // max(images, 1), kind.size)

    def live_axes(self, counts: Sequence[int], inside: int) -> list[Index]:
        """Return how many turns of nested loops, outermost first, have live elements.

        inside: elements of the result in a turn of the innermost one.
        """
        found: list[Index] = []
        for count in reversed(counts):
            found.append(self.live_pieces(count, inside, count * inside))
            inside *= count
        return found[::-1]

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Emit code in which all elements count as live."""
        live, self._live = self._live, None
        yield
        self._live = live

    def live_terms(self, depth: int) -> Index:
        """Return how many of the `depth` terms of a sum of products matter."""
        if self._live is None or self._live.summed is None:
            return depth
        with self.at_entry():
            return self.minimum(self.maximum(self._live.summed, 0), depth)

    @property
    def live_period(self) -> int | None:
        """Elements of the result after which its live places count from 0 again; None where all are live."""
        return self._live.rules[0].period if self._live is not None and self._live.rules else None

    @contextmanager
    def live_rows(self, rows: int, length: int, name: str = "row") -> Iterator[Index]:
        """Emit a loop over a share of the rows, of `length` elements of the result, that have live ones."""
        first, end = self.share(rows)
        live = self._live
        with self.loop(
            first, self.minimum(end, self.live_pieces(rows, length, rows * length)), name=name
        ) as row:
            several = (self.live_period or rows * length) < rows * length
            condition = live.has_row(self, row, length) if live is not None and several else None
            with nullcontext() if condition is None else self.when(condition):
                yield row

    def _bound(self, part: Value) -> Value:
        return self.b.udiv(self.b.mul(part, self.index(self.units)), self._parts)

    @contextmanager
    def first_share(self) -> Iterator[None]:
        """Emit code that only the first share runs: work before the pieces of `share`."""
        if self._part is None:
            yield
            return
        with self.when(self.b.icmp_unsigned("==", self._part, self.index(0))):
            yield

    @contextmanager
    def last_share(self) -> Iterator[None]:
        """Emit code that only the last share runs: the remainder beside the pieces of `share`."""
        if self._part is None:
            yield
            return
        following = self.b.add(self._part, self.index(1))
        with self.when(self.b.icmp_unsigned("==", following, self._parts)):
            yield

    @contextmanager
    def undivided(self) -> Iterator[None]:
        """Emit code in which `share` returns all pieces, for work that one thread has to do alone."""
        part, self._part = self._part, None
        yield
        self._part = part

    @contextmanager
    def shared_loop(
        self, share: tuple[Index, Index], first: int, count: Index, name: str = "i"
    ) -> Iterator[Index]:
        """Emit a loop over the pieces `first` ... `first + count - 1` in a share, counted from `first`."""
        start = self.maximum(self.plus(share[0], -first), 0)
        stop = self.minimum(self.plus(share[1], -first), count)
        with self.loop(start, stop, name=name) as index:
            yield index
