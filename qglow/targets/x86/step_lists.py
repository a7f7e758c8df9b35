"""Packing of int8 weights as lists of steps, a list for each kind (step_kinds).

Masks that invert activations for each channel follow the weights whose signs are changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qglow.core.types import Array
from qglow.kernels.tiled.blocking import divide
from qglow.kernels.tiled.geometry import Geometry, Runs
from qglow.kernels.tiled.packing import filter_steps
from qglow.targets.x86.byte_pairs import BytePairTile
from qglow.targets.x86.step_kinds import Division, changed_signs, divide_steps, unlike_signs

INVERTED = 255
"""A byte plus that of its inverted bits."""
JOINED, FLIPPED, SINGLE, MASKED = range(4)
"""Numbers of the lists."""
PLACES = (2, 2, 2, 1)
"""Steps in one iteration of the loop over each list."""
LIST_FIELDS = 3
"""Fields of a list in a header: turns of its loop, and starts of the places of its steps and its weights."""
LENGTH_FIELD = 8 * LIST_FIELDS * len(PLACES)
"""Offset in a header of its block's length in bytes."""
HEADER_BYTES = 128
ENTRY_BYTES = 8
"""Size of an entry in the table of blocks: the distance from the entry to the lists of its block."""
ALIGNMENT = 64
SAMPLED = 6
"""Number of blocks, at most, that are examined to estimate a whole layer."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the steps of a block by kind; those that are split are single twice."""

    joined: float
    flipped: float
    single: float
    masked: float


class PackedLists(NamedTuple):
    """Lists of all blocks, and what their sums lack.

    data: bytes, as `pack_lists` describes them. lacking: int32 for each lane of every vector of channels, 255
    times the weights whose signs are changed.
    """

    data: Array
    lacking: Array


def typical_shares(tile: BytePairTile, rows: Array, geometry: Geometry) -> tuple[Shares, ...]:
    """Estimate shares from a few blocks, by the number of vectors of a block, from 1 on.

    `rows` is one row of weights a channel.
    """
    group, result = filter_steps(rows, geometry, tile)[0], []
    for vectors in range(1, min(tile.most_vectors, len(group)) + 1):
        sampled = (blocks[:: -(-len(blocks) // SAMPLED)] for _, blocks in _blocks(group, vectors))
        found = [kinds for blocks in sampled for kinds in divide_steps(blocks)]
        steps = len(found) * group.shape[1]
        joined, flipped, single, masked, split = (
            sum(map(len, numbers)) / steps for numbers in zip(*found, strict=True)
        )
        result.append(Shares(joined, flipped, single + 2 * split, masked))
    return tuple(result)


def turn_bytes(tile: BytePairTile, vectors: int) -> tuple[int, int, int, int]:
    """Bytes of weights and masks in one iteration of the loop over each list."""
    step = vectors * tile.weight_bytes
    return 2 * step, 3 * step, 2 * step, 2 * step


def pack_lists(tile: BytePairTile, rows: Array, geometry: Geometry, most_vectors: int) -> PackedLists:
    """Pack weights as a table of blocks, an entry a vector, followed by the lists of each block.

    `rows` is one row of weights a channel in ascending (kh, kw, c). A block has a header of int64 (the
    fields of all lists, then its length), then for each list places of steps as int32 and the weights. Masks
    follow the weights of two flipped steps, or of a masked one.
    """
    places = _step_places(geometry.runs)
    groups = filter_steps(rows, geometry, tile)
    vectors = groups.shape[1]
    table = np.zeros(geometry.groups * vectors, np.int64)
    parts = [np.zeros(table.nbytes + -table.nbytes % ALIGNMENT, np.uint8)]
    lacking = np.zeros((table.size, tile.lanes), np.int32)
    end = parts[0].size
    for number, group in enumerate(groups):
        for start, blocks in _blocks(group, most_vectors):
            entries = number * vectors + start + blocks.shape[1] * np.arange(len(blocks))
            for entry, block, kinds in zip(entries, blocks, divide_steps(blocks), strict=True):
                table[entry] = end - entry * ENTRY_BYTES
                packed, lacking[entry : entry + len(block)] = _pack_block(block, kinds, places)
                parts.append(packed)
                end += packed.size
    parts[0][: table.nbytes] = table.view(np.uint8)
    return PackedLists(np.concatenate(parts), lacking.reshape(-1))


def _pack_block(block: Array, kinds: Division, places: Array) -> tuple[Array, Array]:
    """Header and lists of the weights [vectors, steps, lanes, 4] of a block; what its sums lack."""
    steps = block.transpose(1, 0, 2, 3)
    flipped, lacking = _flipped_turns(steps[kinds.flipped])
    masked, lacking_too = _masked_turns(steps[kinds.masked])
    first, second = np.copy(steps[kinds.split]), np.copy(steps[kinds.split])
    first[..., 1::2] = second[..., 0::2] = 0
    single = np.concatenate([kinds.single, kinds.split, kinds.split])
    lists = [
        (kinds.joined, steps[kinds.joined]),
        (kinds.flipped, flipped),
        (single, np.concatenate([steps[kinds.single], first, second])),
        (kinds.masked, masked),
    ]
    header = np.zeros(HEADER_BYTES // 8, np.int64)
    parts, end = [header.view(np.uint8)], HEADER_BYTES
    for number, (listed, weights) in enumerate(lists):
        fields = [len(listed) // PLACES[number]]
        for data in (places[listed], weights):
            fields.append(end)
            data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            parts.append(np.pad(data, (0, -data.size % ALIGNMENT)))
            end += parts[-1].size
        header[LIST_FIELDS * number : LIST_FIELDS * (number + 1)] = fields
    header[LENGTH_FIELD // 8] = end
    return np.concatenate(parts), lacking + lacking_too


def _flipped_turns(steps: Array) -> tuple[Array, Array]:
    """Weights and mask of each two of the steps [steps, vectors, lanes, 4]; what sums lack [vectors, lanes].

    Returns int8 [half as many, 3, vectors, lanes, 4].
    """
    first, second = steps[0::2], steps[1::2]
    flat = steps.reshape(len(steps), math.prod(steps.shape[1:]))
    flips = changed_signs(flat[0::2], flat[1::2]).reshape(second.shape)
    changed, mask, lacking = _inverted(second, flips)
    return np.stack([first, changed, mask], axis=1), lacking


def _masked_turns(steps: Array) -> tuple[Array, Array]:
    """Weights and mask of each of the steps [steps, vectors, lanes, 4]; what sums lack [vectors, lanes].

    Returns int8 [as many, 2, vectors, lanes, 4].
    """
    changed, mask, lacking = _inverted(steps, unlike_signs(steps))
    return np.stack([changed, mask], axis=1), lacking


def _inverted(steps: Array, flips: Array) -> tuple[Array, Array, Array]:
    """Weights with changed signs, the mask of their activations, and what sums lack [vectors, lanes]."""
    lacking = INVERTED * np.where(flips, steps, 0).sum(axis=(0, 3), dtype=np.int32)
    return np.where(flips, -steps, steps), -flips.astype(np.int8), lacking


def _blocks(group: Array, most_vectors: int) -> Iterator[tuple[int, Array]]:
    """The first vector, and the weights [blocks, vectors, steps, lanes, 4], of all blocks of one size."""
    for piece in divide(len(group), most_vectors):
        end = piece.start + piece.size * piece.count
        yield piece.start, group[piece.start : end].reshape(piece.count, piece.size, *group.shape[1:])


def _step_places(runs: Runs) -> Array:
    """Bytes from a pixel's address to each of its steps, int32."""
    rows, columns, steps = np.ogrid[: runs.rows, : runs.columns, : runs.steps]
    places = rows * runs.row_stride + columns * runs.column_stride + steps * runs.step
    return np.asarray(places, np.int32).reshape(-1)
