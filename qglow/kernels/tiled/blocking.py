"""Blocking of an implicit matrix product into register tiles, and its cost.

A tile is `pixels` x `vectors` accumulators. The pixels of a row and the vectors of channels of a layer are
divided into tiles of at most two sizes, which differ by one, so that no tile is partly empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from qglow.core.errors import UnsupportedError
from qglow.kernels.tiled.geometry import Axis, Geometry, collapse
from qglow.kernels.tiles.output import PACKED
from qglow.kernels.tiles.tile import MicroTile

WHOLE_VECTORS = 2
"""Vectors of a tile that holds all pixels, where it is larger than others."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Range of `count` adjacent tiles (or blocks) of `size` units each, from unit `start` on."""

    start: int
    size: int
    count: int


def divide(total: int, limit: int) -> list[Piece]:
    """Divide `total` units into the fewest tiles of at most `limit`, of one size or two that differ by one.

    Every size is emitted as code of its own, so few sizes mean little code.
    """
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
    """Size of the largest tile and order of the loops.

    `by_rows`: rows of pixels are the outer loop and blocks of channels the inner one; else the other way
    round.
    """

    pixels: int
    vectors: int
    by_rows: bool


def pixel_axes(geometry: Geometry, by_rows: bool) -> tuple[Axis, ...]:
    """Axes of pixels, outermost first and merged where possible; `by_rows` keeps rows of an image apart."""
    axes = geometry.walked_axes
    joined = collapse(axes)
    if by_rows and len(joined) == 1 and len(axes) > 1:
        kept = tuple(axis for axis in axes if axis.count > 1)
        return kept or joined
    return joined


@lru_cache(maxsize=4096)
def blocking_cost(geometry: Geometry, tile: MicroTile, blocking: Blocking) -> float:
    """Estimated cycles of the whole product, with a surcharge for the code of every size of tile."""
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
    return cycles * rows * (1.0 + tile.model.variant_share * len(vectors) * len(pixels))


def _tile_cost(geometry: Geometry, tile: MicroTile, pixels: int, vectors: int) -> float:
    step = tile.step_cycles(pixels, vectors)
    weight_bytes = vectors * tile.weight_bytes
    # Every tile reads all weights of its block. Where these exceed the first-level cache, a step takes at
    # least as long as the second-level cache needs to deliver its weights.
    if weight_bytes * geometry.runs.total_steps > tile.model.near_bytes:
        step = max(step, weight_bytes / tile.model.far_bytes_a_cycle)
    return step * geometry.runs.total_steps + tile.model.tile_cycles + _output_cost(tile, pixels, vectors)


def _output_cost(tile: MicroTile, pixels: int, vectors: int) -> float:
    sums = pixels * vectors
    packs = -(-sums // PACKED) if vectors <= 2 else pixels * -(-vectors // PACKED)
    return sums * tile.model.sum_cycles + packs * tile.model.pack_cycles


def candidates(geometry: Geometry, tile: MicroTile) -> Iterator[Blocking]:
    """Tiles whose accumulators fit the registers, rows outermost if all weights stay near over a row.

    A tile of all pixels by two vectors may be larger than others: there is none that its end has to overlap
    with. More vectors gain nothing, and two are what tiles of many pixels have, which then share its weights.
    """
    layer_vectors = -(-geometry.filters // tile.lanes)
    weights = geometry.groups * layer_vectors * tile.weight_bytes * geometry.runs.total_steps
    by_rows = weights <= tile.model.row_bytes
    row = pixel_axes(geometry, by_rows)[-1].count
    for vectors in range(1, min(layer_vectors, tile.most_vectors, tile.model.most_sums) + 1):
        most = min(row, tile.most_pixels(vectors), max(1, tile.model.most_sums // vectors))
        for pixels in range(1, most + 1):
            yield Blocking(pixels, vectors, by_rows)
        if vectors == WHOLE_VECTORS and most < row == geometry.pixels <= tile.most_pixels(vectors):
            yield Blocking(geometry.pixels, vectors, by_rows)


@lru_cache(maxsize=1024)
def choose_blocking(geometry: Geometry, tile: MicroTile) -> Blocking:
    """Choose the blocking of least estimated cost, among equals one tile of all pixels, then the largest.

    Raises UnsupportedError for a product without elements.
    """
    found = list(candidates(geometry, tile))
    if not found:
        raise UnsupportedError("a product without elements is not compiled; use shapes without 0")
    return min(found, key=lambda b: _rank(geometry, tile, b))


def ranked_blockings(geometry: Geometry, tile: MicroTile) -> list[Blocking]:
    """All candidates, the cheapest first, each followed by the same tile in the other order of loops.

    Of blockings that result in the same code only the first is kept.
    """
    ranked = sorted(candidates(geometry, tile), key=lambda b: _rank(geometry, tile, b))
    both = [b for one in ranked for b in (one, replace(one, by_rows=not one.by_rows))]
    distinct = {_tiles(geometry, tile, blocking): blocking for blocking in reversed(both)}
    return [blocking for blocking in both if distinct[_tiles(geometry, tile, blocking)] is blocking]


def _rank(geometry: Geometry, tile: MicroTile, blocking: Blocking) -> tuple[float, bool, int]:
    several = blocking.pixels < geometry.pixels
    return blocking_cost(geometry, tile, blocking), several, -blocking.pixels * blocking.vectors


def _tiles(geometry: Geometry, tile: MicroTile, blocking: Blocking) -> object:
    """Key of a blocking: blockings with equal keys have the same code."""
    row = pixel_axes(geometry, blocking.by_rows)[-1].count
    vectors = divide(-(-geometry.filters // tile.lanes), blocking.vectors)
    return blocking.by_rows, tuple(divide(row, blocking.pixels)), tuple(vectors)
