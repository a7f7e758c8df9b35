"""How an implicit matrix product is cut into register tiles, and what that costs.

A tile is `pixels` x `vectors` accumulators. Pixels of a row and vectors of a layer are divided
into tiles of two adjacent sizes that fit exactly, so that no tile is ever partly empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from qglow.kernels.conv_geometry import Axis, Geometry, collapse
from qglow.kernels.tile import MicroTile
from qglow.kernels.tile_output import PACKED

NEAR_BYTES = 32 * 1024
"""Weights of a block beyond this do not stay in the first-level cache."""
FAR_BYTES_A_CYCLE = 32.0
TILE_OVERHEAD = 12.0
SUM_CYCLES = 1.8
"""Cycles to start and finish one accumulator."""
PACK_CYCLES = 2.5
"""Cycles to narrow and store up to four vectors."""
MOST_SUMS = 21
"""With more accumulators the end of a tile overlaps less with the start of the next [measured]."""
VARIANT_COST = 0.03
"""Another size of tile must win this much of the whole time to be worth its code."""
SMALL_WEIGHTS = 24 * 1024
"""Weights of a layer up to this stay near while all of them pass over one row of pixels."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`count` adjacent stretches of `size` units that start at unit `start`."""

    start: int
    size: int
    count: int


def divide(total: int, limit: int) -> list[Piece]:
    """The fewest stretches of at most `limit` that cover `total`, of one size or two adjacent ones."""
    tiles = -(-total // limit)
    size = -(-total // tiles)
    smaller = tiles * size - total
    larger = tiles - smaller
    pieces = [Piece(0, size, larger)]
    if smaller:
        pieces.append(Piece(larger * size, size - 1, smaller))
    return pieces


@dataclass(frozen=True, slots=True)
class Blocking:
    """Largest tile, and whether all weights pass over a row before the next row is begun."""

    pixels: int
    vectors: int
    by_rows: bool


def pixel_axes(geometry: Geometry, by_rows: bool) -> tuple[Axis, ...]:
    """Axes to walk; rows of an image stay apart where weights pass over one row at a time."""
    axes = geometry.walked_axes
    joined = collapse(axes)
    if by_rows and len(joined) == 1 and len(axes) > 1:
        kept = tuple(axis for axis in axes if axis.count > 1)
        return kept or joined
    return joined


def blocking_cost(geometry: Geometry, tile: MicroTile, blocking: Blocking) -> float:
    """Estimated cycles of the whole product."""
    axes = pixel_axes(geometry, blocking.by_rows)
    rows = geometry.groups * (geometry.axes[0].count if geometry.copied else 1)
    for axis in axes[:-1]:
        rows *= axis.count
    vectors = divide(-(-geometry.filters // tile.lanes), blocking.vectors)
    pixels = divide(axes[-1].count, blocking.pixels)
    cycles = 0.0
    for block in vectors:
        for piece in pixels:
            cost = _tile_cost(geometry, tile, piece.size, block.size)
            cycles += cost * piece.count * block.count
    return cycles * rows * (1.0 + VARIANT_COST * len(vectors) * len(pixels))


def _tile_cost(geometry: Geometry, tile: MicroTile, pixels: int, vectors: int) -> float:
    step = tile.step_cycles(pixels, vectors)
    weight_bytes = vectors * tile.weight_bytes
    if weight_bytes * geometry.runs.total_steps > NEAR_BYTES:
        step = max(step, weight_bytes / FAR_BYTES_A_CYCLE)
    return step * geometry.runs.total_steps + TILE_OVERHEAD + _output_cost(pixels, vectors)


def _output_cost(pixels: int, vectors: int) -> float:
    sums = pixels * vectors
    packs = -(-sums // PACKED) if vectors <= 2 else pixels * -(-vectors // PACKED)
    return sums * SUM_CYCLES + packs * PACK_CYCLES


def candidates(geometry: Geometry, tile: MicroTile) -> Iterator[Blocking]:
    """Tiles that fit the registers."""
    layer_vectors = -(-geometry.filters // tile.lanes)
    weights = geometry.groups * layer_vectors * tile.weight_bytes * geometry.runs.total_steps
    by_rows = weights <= SMALL_WEIGHTS
    row = pixel_axes(geometry, by_rows)[-1].count
    for vectors in range(1, min(layer_vectors, tile.most_vectors) + 1):
        most = min(row, tile.most_pixels(vectors), max(1, MOST_SUMS // vectors))
        for pixels in range(1, most + 1):
            yield Blocking(pixels, vectors, by_rows)


def choose_blocking(geometry: Geometry, tile: MicroTile) -> Blocking:
    """The cheapest of the candidates; the larger tile among equals."""
    return min(candidates(geometry, tile), key=lambda b: _rank(geometry, tile, b))


def ranked_blockings(geometry: Geometry, tile: MicroTile) -> list[Blocking]:
    """All candidates, the cheapest first, each followed by itself in the other order of loops.

    Of those that make the same tiles, the first only.
    """
    ranked = sorted(candidates(geometry, tile), key=lambda b: _rank(geometry, tile, b))
    both = [b for one in ranked for b in (one, replace(one, by_rows=not one.by_rows))]
    distinct = {_tiles(geometry, tile, blocking): blocking for blocking in reversed(both)}
    return [blocking for blocking in both if distinct[_tiles(geometry, tile, blocking)] is blocking]


def _rank(geometry: Geometry, tile: MicroTile, blocking: Blocking) -> tuple[float, int]:
    return blocking_cost(geometry, tile, blocking), -blocking.pixels * blocking.vectors


def _tiles(geometry: Geometry, tile: MicroTile, blocking: Blocking) -> object:
    """What the code of a blocking depends on."""
    row = pixel_axes(geometry, blocking.by_rows)[-1].count
    vectors = divide(-(-geometry.filters // tile.lanes), blocking.vectors)
    return blocking.by_rows, tuple(divide(row, blocking.pixels)), tuple(vectors)
