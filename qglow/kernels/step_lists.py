"""Which steps of a block of int8 weights AVX2 multiplies as bytes, and the constants that say so.

vpmaddubsw multiplies unsigned by signed bytes and adds two products in 16 bits, where it saturates. It is
exact for every activation where two neighbouring weights add up to no more than 128 either way, which holds
for most. Two steps whose sums of pairs together are in these bounds for every channel are joined: they are
added in 16 bits before they are widened, which takes three multiplications instead of four. Steps with a pair
that does not fit are multiplied in 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qglow.core.types import Array
from qglow.kernels.conv_blocking import divide
from qglow.kernels.conv_geometry import Geometry, Runs
from qglow.kernels.conv_packing import filter_steps
from qglow.kernels.tile import BytePairTile, MicroTile, PairTile

MOST_PAIR = 128
"""255 times this, and 255 times its negative, are in the range of int16."""
JOINED = 0
"""The number of the list of joined steps; those of single and of wide ones follow."""
PLACES = (2, 2, 1)
"""Steps in a turn of the loop over each list: the same bytes of weights."""
LIST_FIELDS = 3
"""Of a list in a header: turns of its loop, and where the places of its steps and its weights begin."""
LENGTH_FIELD = 8 * LIST_FIELDS * len(PLACES)
"""Of a header: where its block's length in bytes is."""
HEADER_BYTES = 128
ENTRY_BYTES = 8
"""Of the table of blocks: how far behind its own place the lists of a block begin."""
ALIGNMENT = 64
ROUNDS = 3
"""How often steps that did not find another one look again; what is left then is single."""
SAMPLED = 6
"""Blocks that stand for all of a layer in an estimate."""


class Division(NamedTuple):
    """Numbers of the steps of a block by kind; neighbours in `joined`, the two of a pair, belong together."""

    joined: Array
    single: Array
    wide: Array


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the steps, how many are joined with another one, and how many need 16 bits."""

    joined: float
    wide: float

    @property
    def single(self) -> float:
        """How many stand alone."""
        return 1.0 - self.joined - self.wide


def pair_loads(weights: Array) -> Array:
    """How far unsigned bytes times pairs of int8 weights [..., even] can reach up and down.

    int16 [..., 2, half as many], a 255th of it: the sum of the positive ones, and of the negative ones
    without its sign.
    """
    wide = weights.astype(np.int16)
    up, down = np.maximum(wide, 0), np.maximum(-wide, 0)
    return np.stack([part[..., 0::2] + part[..., 1::2] for part in (up, down)], axis=-2)


def divide_steps(block: Array) -> Division:
    """The steps of the weights [vectors, steps, lanes, 4] of a block.

    Steps are sorted by the farthest that any of their pairs reaches; the one that reaches least is tried
    with the one that reaches most, and so on. Of those that do not fit, the one that reaches less tries
    again in the next round.
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
    """Shares of a few blocks that stand for all, by the number of vectors of a block, from 1 on.

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
    bytes_tile = BytePairTile(tile.lanes, tile.registers)
    return bytes_tile, bytes_tile, tile


def pack_lists(tile: PairTile, rows: Array, geometry: Geometry, most_vectors: int) -> Array:
    """The table of blocks, an entry a vector, then the lists of each.

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
