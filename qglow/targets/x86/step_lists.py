"""Packing of int8 weights as lists of steps, which AVX2 multiplies as bytes.

A step is four weights of each channel. vpmaddubsw multiplies unsigned by signed bytes and adds two products
in 16 bits, where it saturates. Two steps are joined where they cannot saturate together: they are added in 16
bits before they are widened, which takes three multiplications instead of four. That is exact for every
activation if for each channel the positive weights of both pairs add up to 128 at most, and the negative ones
to -128 at least.

Where weights do not fit that way, their signs are changed: `w * u` is `255 * w - w * (255 - u)`, and 255 - u
are the bits of u inverted. So a step may be joined with one that fits alone, if some signs of its weights
balance the two. Its activations are inverted for each channel by a mask, and 255 times the weights is part of
the bias.

Steps that find no partner are multiplied alone, those that do not fit by a mask of their own: two weights of
unlike signs always fit. Only two neighbours of -128, which has no negative byte, take a step for each.
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

MOST_PAIR = 128
"""255 times this, and 255 times its negative, are in the range of int16."""
LEAST = -128
"""The weight whose negative is no int8."""
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
ROUNDS = 3
"""Number of times that steps look for another one to join as they are."""
FLIPPED_ROUNDS = 4
"""Number of times that steps look for another one to join with other signs."""
MOST_TRIED = 64
"""Most steps of which every one is tried with every other one."""
MOST_VECTORS = 3
"""Most vectors of a block: the more, the fewer steps can be joined for all of them."""
SAMPLED = 6
"""Number of blocks, at most, that are examined to estimate a whole layer."""


class Division(NamedTuple):
    """Numbers of the steps of a block by kind; elements 2 i and 2 i + 1 of the first two are joined steps.

    Of flipped ones, signs of the second are changed, of masked ones those that have to be. There is an even
    number of single ones. Those to split have neighbours of -128.
    """

    joined: Array
    flipped: Array
    single: Array
    masked: Array
    split: Array


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


def pair_loads(weights: Array) -> Array:
    """Bounds of sums of two products of unsigned bytes by pairs of int8 weights [..., even].

    Returns int16 [..., 2, half as many] in units of 255: the sum of a pair's positive weights, and the
    absolute value of the sum of its negative ones.
    """
    wide = weights.astype(np.int16)
    up, down = np.maximum(wide, 0), np.maximum(-wide, 0)
    return np.stack([part[..., 0::2] + part[..., 1::2] for part in (up, down)], axis=-2)


@dataclass(frozen=True, slots=True)
class _Balances:
    """Rooms beside the pairs of each step, and magnitudes of its weights, which say what changed signs join.

    All are int16 [steps, pairs]: the larger and the smaller room for positive or negative weights, the larger
    and the smaller magnitude of a pair, and their sum. A weight of -128 has no negative: its pair never fits.
    """

    more_room: Array
    less_room: Array
    larger: Array
    smaller: Array
    both: Array

    @staticmethod
    def of(weights: Array, loads: Array) -> _Balances:
        """Return those of weights [steps, even], whose bounds are `loads` [steps, 2, pairs]."""
        sizes = np.abs(weights.astype(np.int16))
        sizes[sizes >= MOST_PAIR] = 2 * MOST_PAIR
        one, other, rooms = sizes[:, 0::2], sizes[:, 1::2], MOST_PAIR - loads
        larger, smaller = np.maximum(one, other), np.minimum(one, other)
        return _Balances(rooms.max(axis=1), rooms.min(axis=1), larger, smaller, one + other)

    def fit(self, first: Array, second: Array) -> Array:
        """Whether all pairs of steps `second` fit beside those of `first`, which are broadcast together.

        Both weights take the larger room, or each one of them.
        """
        more, less = self.more_room[first], self.less_room[first]
        apart_or_together = (self.smaller[second] <= less) | (self.both[second] <= more)
        return np.asarray(((self.larger[second] <= more) & apart_or_together).all(axis=-1))


def divide_steps(block: Array) -> Division:
    """Divide the steps of the weights [vectors, steps, lanes, 4] of a block into kinds.

    Steps that fit alone and find no partner as they are look for one among those that do not fit alone, whose
    signs are changed.
    """
    weights = block.transpose(1, 0, 2, 3).reshape(block.shape[1], -1)
    loads = pair_loads(weights)
    joined, *left = _join(loads.reshape(len(weights), -1))
    balances = _Balances.of(weights, loads)
    flipped, *left = _balance(balances, *left)
    chosen, single, large = _balance_each(balances, *left)
    even = len(single) // 2 * 2
    alone = np.sort(np.concatenate([single[even:], large]))
    least = weights[alone] == LEAST
    splits = (least[:, 0::2] & least[:, 1::2]).any(axis=1)
    return Division(joined, np.concatenate([flipped, chosen]), single[:even], alone[~splits], alone[splits])


def _join(loads: Array) -> tuple[Array, Array, Array]:
    """Join steps as they are; returns their numbers, those of others that fit alone, and of the rest.

    `loads`: [steps, bounds]. Steps are sorted by the largest bound of any of their pairs. The one with the
    smallest is tried with the one with the largest, and so on. Of two that do not fit, the one with the
    larger bound stays alone, and the other one is tried again in the next round.
    """
    most = loads.max(axis=1)
    order = np.argsort(most, kind="stable")
    fitting = np.count_nonzero(most <= MOST_PAIR)
    left, alone, joined = order[:fitting], [], []
    for _ in range(ROUNDS):
        half = len(left) // 2
        low, high = left[:half], left[::-1][:half]
        fit = (loads[low] + loads[high]).max(axis=1, initial=0) <= MOST_PAIR
        joined.append(_in_turns(low[fit], high[fit]))
        alone.append(high[~fit])
        left = np.concatenate([low[~fit], left[half : len(left) - half]])
    return np.concatenate(joined), np.concatenate([*alone, left]), order[fitting:]


def _balance(balances: _Balances, first: Array, second: Array) -> tuple[Array, Array, Array]:
    """Join steps of `first` with steps of `second` whose signs are changed; returns both lists' rests too.

    The step of `first` with the smallest weights is tried with that of `second` with the largest, and so on.
    Each further round tries the rest with others.
    """
    largest = balances.both.max(axis=1)
    first = first[np.argsort(largest[first], kind="stable")]
    second = second[np.argsort(-largest[second], kind="stable")]
    joined = [first[:0]]
    for number in range(FLIPPED_ROUNDS):
        count = min(len(first), len(second))
        if not count:
            break
        moved = number * len(first) // FLIPPED_ROUNDS
        first = np.concatenate([first[moved:], first[:moved]])
        one, other = first[:count], second[:count]
        fit = balances.fit(one, other)
        joined.append(_in_turns(one[fit], other[fit]))
        first = np.concatenate([one[~fit], first[count:]])
        second = np.concatenate([other[~fit], second[count:]])
    return np.concatenate(joined), first, second


def _balance_each(balances: _Balances, first: Array, second: Array) -> tuple[Array, Array, Array]:
    """Join as `_balance` does, but try every step with every other one; only for few steps.

    Steps with the fewest choices choose first, each the partner that the fewest others can take.
    """
    one, other = first[:MOST_TRIED], second[:MOST_TRIED]
    fits = balances.fit(one[None, :], other[:, None])
    wanted = np.where(fits, fits.sum(axis=0), len(other) + 1)
    partners: dict[int, int] = {}
    for number in np.argsort(fits.sum(axis=1), kind="stable"):
        if fits[number].any():
            partners[int(number)] = best = int(wanted[number].argmin())
            fits[:, best], wanted[:, best] = False, len(other) + 1
    chosen, taken = list(partners), list(partners.values())
    return _in_turns(one[taken], other[chosen]), np.delete(first, taken), np.delete(second, chosen)


def changed_signs(first: Array, second: Array) -> Array:
    """Mark weights of `second` [steps, even] that change their signs to be joined with those of `first`."""
    loads = pair_loads(first)
    up, down = MOST_PAIR - loads[:, 0], MOST_PAIR - loads[:, 1]
    sizes = np.abs(second.astype(np.int16))
    one, other = sizes[:, 0::2], sizes[:, 1::2]
    apart = (one <= up) & (other <= down)
    swapped = (other <= up) & (one <= down)
    both = one + other <= up
    positive = np.stack([apart | ~swapped & both, ~apart & (swapped | both)], axis=-1)
    return np.asarray((positive.reshape(second.shape) == (second < 0)) & (second != 0))


def _in_turns(first: Array, second: Array) -> Array:
    return np.stack([first, second], axis=1).reshape(-1)


def typical_shares(tile: BytePairTile, rows: Array, geometry: Geometry) -> tuple[Shares, ...]:
    """Estimate shares from a few blocks, by the number of vectors of a block, from 1 on.

    `rows` is one row of weights a channel.
    """
    groups = filter_steps(rows, geometry, tile)
    total, result = groups.shape[1], []
    for vectors in range(1, min(MOST_VECTORS, total) + 1):
        every = list(_blocks(total, vectors))
        blocks = [groups[0][first : first + size] for first, size in every[:: -(-len(every) // SAMPLED)]]
        kinds = zip(*(divide_steps(block) for block in blocks), strict=True)
        steps = len(blocks) * groups.shape[2]
        joined, flipped, single, masked, split = (sum(map(len, found)) / steps for found in kinds)
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
        for first, size in _blocks(vectors, most_vectors):
            entry = number * vectors + first
            table[entry] = end - entry * ENTRY_BYTES
            packed, lacking[entry : entry + size] = _pack_block(group[first : first + size], places)
            parts.append(packed)
            end += packed.size
    parts[0][: table.nbytes] = table.view(np.uint8)
    return PackedLists(np.concatenate(parts), lacking.reshape(-1))


def _pack_block(block: Array, places: Array) -> tuple[Array, Array]:
    """Header and lists of the weights [vectors, steps, lanes, 4] of a block; what its sums lack."""
    kinds = divide_steps(block)
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
    one, other = steps[..., 0::2], steps[..., 1::2]
    alike = ((one < 0) == (other < 0)) & (one != 0) & (other != 0)
    flips = np.stack([alike & (other == LEAST), alike & (other != LEAST)], axis=-1).reshape(steps.shape)
    changed, mask, lacking = _inverted(steps, flips)
    return np.stack([changed, mask], axis=1), lacking


def _inverted(steps: Array, flips: Array) -> tuple[Array, Array, Array]:
    """Weights with changed signs, the mask of their activations, and what sums lack [vectors, lanes]."""
    lacking = INVERTED * np.where(flips, steps, 0).sum(axis=(0, 3), dtype=np.int32)
    return np.where(flips, -steps, steps), -flips.astype(np.int8), lacking


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
