"""Loops of products whose weights are unpacked once for all rows, into near memory, some blocks at a time.

Sums over blocks wait in the result from one block to the next, so that all registers are free for a block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from qglow.kernels.arithmetic.requantize import clamp_float
from qglow.kernels.emit.builder import F32, Index, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Site
from qglow.kernels.products.matmul import live_rows, pieces

NEAR_BYTES = 16 * 1024
"""Most bytes of unpacked weights: about half of a first-level cache, and little beside a stack."""
LANE_BYTES = {8: 4 * NEAR_BYTES, 16: 2 * NEAR_BYTES}
"""The same on processors with registers of so many floats, which have a large second-level cache: to come
back to the sums of all rows more often costs more than what comes from there [measured]."""

Place = tuple[Value, int]
"""Address of a vector of the result, and how many of its columns there are."""


@dataclass(frozen=True)
class PanelTile:
    """Some rows of a panel: the first of them, how many there are, and where their sums lie [row][vector]."""

    row: Index
    height: int
    places: list[Place]


class PanelWork(ABC):
    """Work on one panel, block by block."""

    @abstractmethod
    def room_bytes(self, length: int) -> int:
        """Bytes of a block of so many weights, unpacked."""

    @abstractmethod
    def unpack(self, room: Value, block: Index, length: int) -> None:
        """Emit stores of the weights of a block."""

    @abstractmethod
    def multiply(self, room: Value, number: Index, size: int, tile: PanelTile, length: int) -> None:
        """Emit the products of a tile in some blocks, added to the sums at its places.

        room: unpacked weights of `size` blocks, each of `length` weights, from block `number` on.
        """

    @abstractmethod
    def bias(self) -> list[Value] | None:
        """Emit loads of what is added to all rows, by vector; None for nothing."""


class BlockWork(PanelWork):
    """Work whose sums are in memory from one block to the next."""

    site: Site

    @abstractmethod
    def products(self, room: Value, block: Index, tile: PanelTile, length: int) -> list[Value]:
        """Emit the products of a tile in a block, added to the sums at its places."""

    def multiply(self, room: Value, number: Index, size: int, tile: PanelTile, length: int) -> None:
        """Emit a loop over the blocks."""
        e, step = self.site.e, self.room_bytes(length)
        with e.loop(0, size, name="block") as n:
            near = e.offset(room, e.scaled(n, step))
            found = self.products(near, e.plus(number, n), tile, length)
            for total, (place, columns) in zip(found, tile.places, strict=True):
                e.store_lanes(total, place, columns)


@dataclass(frozen=True)
class PanelPortions:
    """Emitter of one panel, the product of all rows with `used` of the `width` columns of panel `number`.

    rows: most rows of a tile.
    """

    site: Site
    work: PanelWork
    rows: int
    width: int
    number: Index
    used: int

    @property
    def e(self) -> Emitter:
        return self.site.e

    @property
    def lanes(self) -> int:
        return self.site.target.float_lanes

    def emit(self) -> None:
        """Emit a loop over portions of blocks, around one that unpacks and one over rows of src."""
        depth, block = self.site["src"].shape[1], self.site.operation.block
        whole, rest = divmod(depth, block)
        near = LANE_BYTES.get(self.lanes, NEAR_BYTES)
        most = max(1, min(whole, near // self.work.room_bytes(block)))
        size = most * self.work.room_bytes(min(block, depth))
        room = self.e.room("unpacked weights", size, 4 * self.lanes)
        self._over_rows(self._clear)
        for first, end, size in pieces(whole, most):
            with self.e.loop(first, end, size, "portion") as number:
                self._portion(room, number, size, block)
        if rest:
            self._portion(room, whole, 1, rest)
        infinite = float("inf")
        bounded = (self.site.operation.lo, self.site.operation.hi) != (-infinite, infinite)
        if bounded or "bias" in self.site.constants:
            self._over_rows(self._finish)

    def _over_rows(self, emit: Callable[[PanelTile], None]) -> None:
        """Emit a loop over tiles of rows."""
        for start, stop, height in pieces(self.site["src"].shape[0], self.rows):
            with live_rows(self.site, start, stop, height) as row:
                emit(PanelTile(row, height, self._places(row, height)))

    def _places(self, row: Index, height: int) -> list[Place]:
        e, columns = self.e, self.site["dest"].shape[1]
        start = e.plus(e.scaled(row, columns), e.scaled(self.number, self.width))
        dest = e.offset(self.site["dest"].pointer, e.scaled(start, 4))
        return [
            (e.offset(dest, 4 * (columns * r + first)), min(self.lanes, self.used - first))
            for r in range(height)
            for first in range(0, self.used, self.lanes)
        ]

    def _clear(self, tile: PanelTile) -> None:
        for place, columns in tile.places:
            self.e.store_lanes(scalar(vec(F32, self.lanes), 0.0), place, columns)

    def _finish(self, tile: PanelTile) -> None:
        """Emit the addition of the bias, and the bounds."""
        e, operation, bias = self.e, self.site.operation, self.work.bias()
        for number, (place, columns) in enumerate(tile.places):
            total = e.load_lanes(place, F32, self.lanes, columns)
            total = total if bias is None else e.b.fadd(total, bias[number % len(bias)])
            e.store_lanes(clamp_float(e, total, operation.lo, operation.hi), place, columns)

    def _portion(self, room: Value, number: Index, size: int, length: int) -> None:
        """Emit the products of all rows with `size` blocks of `length` weights from block `number` on."""
        e, step = self.e, self.work.room_bytes(length)
        with e.loop(0, size, name="unpacked") as n:
            self.work.unpack(e.offset(room, e.scaled(n, step)), e.plus(number, n), length)

        self._over_rows(lambda tile: self.work.multiply(room, number, size, tile, length))
