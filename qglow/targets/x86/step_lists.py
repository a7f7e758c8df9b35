"""Packing of int8 weights as lists of steps, most of which AVX2 multiplies as bytes.

A step is four weights of each channel. vpmaddubsw multiplies unsigned by signed bytes and adds two products
in 16 bits, where it saturates. It is exact for every activation if the positive weights of a pair add up to
128 at most, and the negative ones to -128 at least, which holds for most pairs. Two steps whose pairs stay in
these bounds together, for every channel, are joined: they are added in 16 bits before they are widened, which
takes three multiplications instead of four. Steps with a pair that does not fit are multiplied in 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qglow.core.types import Array
from qglow.kernels.tiled.blocking import divide
from qglow.kernels.tiled.geometry import Geometry, Runs
from qglow.kernels.tiled.packing import filter_steps
from qglow.kernels.tiles.tile import MicroTile, PairTile
from qglow.targets.x86.byte_pairs import BytePairTile

MOST_PAIR = 128
"""255 times this, and 255 times its negative, are in the range of int16."""
JOINED = 0
"""The number of the list of joined steps; those of single and of wide ones follow."""
PLACES = (2, 2, 1)
"""Steps in one iteration of the loop over each list; they have equally many bytes of weights."""
LIST_FIELDS = 3
"""Fields of a list in a header: turns of its loop, and starts of the places of its steps and its weights."""
LENGTH_FIELD = 8 * LIST_FIELDS * len(PLACES)
"""Offset in a header of its block's length in bytes."""
HEADER_BYTES = 128
ENTRY_BYTES = 8
"""Size of an entry in the table of blocks: the distance from the entry to the lists of its block."""
ALIGNMENT = 64
ROUNDS = 3
"""Number of times that steps look for another one to join; what is left then is single."""
SAMPLED = 6
"""Number of blocks, at most, that are examined to estimate a whole layer."""


class Division(NamedTuple):
    """Numbers of the steps of a block by kind; elements 2 i and 2 i + 1 of `joined` are joined steps."""

    joined: Array
    single: Array
    wide: Array


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the steps that are joined with another one, and of those that need 16 bits."""

    joined: float
    wide: float

    @property
    def single(self) -> float:
        """Share of the steps that stand alone."""
        return 1.0 - self.joined - self.wide


def pair_loads(weights: Array) -> Array:
    """Bounds of sums of two products of unsigned bytes by pairs of int8 weights [..., even].

    Returns int16 [..., 2, half as many] in units of 255: the sum of a pair's positive weights, and the
    absolute value of the sum of its negative ones.
    """
    wide = weights.astype(np.int16)
    up, down = np.maximum(wide, 0), np.maximum(-wide, 0)
    return np.stack([part[..., 0::2] + part[..., 1::2] for part in (up, down)], axis=-2)


def divide_steps(block: Array) -> Division:
    """Divide the steps of the weights [vectors, steps, lanes, 4] of a block into kinds.

    Steps are sorted by the largest bound of any of their pairs. The one with the smallest is tried with the
    one with the largest, and so on. Of two that do not fit, the one with the larger bound stays single, and
    the other one is tried again in the next round.
    """
    steps = block.shape[1]
    loads = pair_loads(block.transpose(1, 0, 2, 3)).reshape(steps, -1)
    most = loads.max(axis=1)
    left = np.argsort(most, kind="stable")
    left = left[: np.count_nonzero(most <= MOST_PAIR)]
    joined, single = [], []
    for _ in range(ROUNDS):
        half = len(left) // 2
        low, high = left[:half], left[::-1][:half]
        fit = (loads[low] + loads[high]).max(axis=1, initial=0) <= MOST_PAIR
        joined.append(np.stack([low[fit], high[fit]], axis=1).reshape(-1))
        single.append(high[~fit])
        left = np.concatenate([low[~fit], left[half : len(left) - half]])
    return Division(np.concatenate(joined), np.concatenate([*single, left]), np.flatnonzero(most > MOST_PAIR))


def typical_shares(tile: PairTile, rows: Array, geometry: Geometry) -> tuple[Shares, ...]:
    """Estimate shares from a few blocks, by the number of vectors of a block, from 1 on.

    `rows` is one row of weights a channel.
    """
    groups = filter_steps(rows, geometry, tile)
    total, result = groups.shape[1], []
    for vectors in range(1, min(tile.most_vectors, total) + 1):
        every = list(_blocks(total, vectors))
        blocks = [groups[0][first : first + size] for first, size in every[:: -(-len(every) // SAMPLED)]]
        kinds = [divide_steps(block) for block in blocks]
        steps = len(blocks) * groups.shape[2]
        joined, wide = (
            sum(len(part) for part in found) / steps
            for found in ([kind.joined for kind in kinds], [kind.wide for kind in kinds])
        )
        result.append(Shares(joined, wide))
    return tuple(result)


def list_tiles(tile: PairTile) -> tuple[MicroTile, MicroTile, MicroTile]:
    """The tile of each list."""
    bytes_tile = BytePairTile(tile.lanes, tile.registers, tile.model)
    return bytes_tile, bytes_tile, tile


def pack_lists(tile: PairTile, rows: Array, geometry: Geometry, most_vectors: int) -> Array:
    """Pack weights as a table of blocks, an entry a vector, followed by the lists of each block.

    `rows` is one row of weights a channel in ascending (kh, kw, c). A block has a header of int64 (the
    fields of all lists, then its length), then for each list places of steps as int32 and the weights.
    """
    places = _step_places(geometry.runs)
    groups = filter_steps(rows, geometry, tile)
    vectors = groups.shape[1]
    table = np.zeros(geometry.groups * vectors, np.int64)
    parts = [np.zeros(table.nbytes + -table.nbytes % ALIGNMENT, np.uint8)]
    end = parts[0].size
    for number, group in enumerate(groups):
        for first, size in _blocks(vectors, most_vectors):
            entry = number * vectors + first
            table[entry] = end - entry * ENTRY_BYTES
            parts.append(_pack_block(tile, group[first : first + size], places))
            end += parts[-1].size
    parts[0][: table.nbytes] = table.view(np.uint8)
    return np.concatenate(parts)


def _pack_block(tile: PairTile, block: Array, places: Array) -> Array:
    """Header and lists of the weights [vectors, steps, lanes, 4] of a block."""
    header = np.zeros(HEADER_BYTES // 8, np.int64)
    parts, end = [header.view(np.uint8)], HEADER_BYTES
    for number, (kind, steps) in enumerate(zip(list_tiles(tile), divide_steps(block), strict=True)):
        missing = -len(steps) % PLACES[number]  # filled up with weights of zero
        weights = np.pad(block[:, steps], ((0, 0), (0, missing), (0, 0), (0, 0)))
        where = np.pad(places[steps], (0, missing))
        fields = [len(where) // PLACES[number]]
        for data in (where, kind.pack(weights).transpose(1, 0, 2)):
            fields.append(end)
            data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            parts.append(np.pad(data, (0, -data.size % ALIGNMENT)))
            end += parts[-1].size
        header[LIST_FIELDS * number : LIST_FIELDS * (number + 1)] = fields
    header[LENGTH_FIELD // 8] = end
    return np.concatenate(parts)


def _blocks(vectors: int, most_vectors: int) -> Iterator[tuple[int, int]]:
    """First vector and size of every block."""
    for piece in divide(vectors, most_vectors):
        for block in range(piece.count):
            yield piece.start + block * piece.size, piece.size


def _step_places(runs: Runs) -> Array:
    """Bytes from a pixel's address to each of its steps, int32."""
    rows, columns, steps = np.ogrid[: runs.rows, : runs.columns, : runs.steps]
    places = rows * runs.row_stride + columns * runs.column_stride + steps * runs.step
    return np.asarray(places, np.int32).reshape(-1)
