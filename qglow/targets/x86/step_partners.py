"""Partners of steps of int8 weights, which are added in 16 bits before they are widened (step_kinds).

Which steps may be partners is a graph, and a choice of partners is a matching in it. Steps of small weights
may have most others and those of large ones few, so partners are sought between a smaller and a larger half,
first for those with the fewest choices. Many blocks are matched at once, since a block alone is too
small for numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from qglow.core.types import Array

MOST = 128
"""255 times this, and 255 times its negative, are in the range of int16."""
NONE = -1
"""The partner of a step without one, and of the second of two partners."""
ROUNDS = 2
"""Number of times that steps without a partner are divided into a smaller and a larger half."""
MOST_MATCHED = 192
"""Most steps that are matched with each other. They are neighbours, so that lists, which are in the order of
their steps, read activations nearly in order. The work grows with their square."""
MOST_TRIED = 1 << 19
"""Most pairs of steps at a time, so that what is known of them stays in the cache."""
NEVER = 1 << 13
"""More than the number of steps that want a partner."""
LARGEST = 255
"""The largest bound that is kept: more never fits either."""


class _Bounds(NamedTuple):
    """Bounds of pairs of weights in units of 255, uint8 [pairs, blocks, steps].

    up, down: the sum of a pair's positive weights, and of the negative ones. larger, smaller, sums:
    magnitudes of its weights and their sum. more_room, less_room: the larger and the smaller room that a pair
    leaves. A weight of -128 has no negative, so its pair never fits with other signs.
    """

    up: Array
    down: Array
    larger: Array
    smaller: Array
    sums: Array
    more_room: Array
    less_room: Array


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps of some blocks: all their bounds [blocks, steps, 7, pairs], and whether they fit alone."""

    all_bounds: Array
    fits: Array

    @staticmethod
    def of(weights: Array, loads: Array) -> _Steps:
        """Return those of weights [blocks, steps, even]; `loads` as `find_partners` takes them."""
        sizes = np.abs(weights.astype(np.int16))
        sizes[sizes >= MOST] = LARGEST
        one, other = sizes[..., 0::2], sizes[..., 1::2]
        rooms = MOST - np.minimum(loads, MOST)
        bounds = _Bounds(
            loads[:, :, 0],
            loads[:, :, 1],
            np.maximum(one, other),
            np.minimum(one, other),
            one + other,
            rooms.max(axis=2),
            rooms.min(axis=2),
        )
        small = np.minimum(np.stack(bounds, axis=2), LARGEST).astype(np.uint8)
        return _Steps(small, loads.max(axis=(2, 3)) <= MOST)

    @property
    def bounds(self) -> _Bounds:
        """Bounds of all pairs."""
        return _Bounds(*np.ascontiguousarray(self.all_bounds.transpose(2, 3, 0, 1)))

    @property
    def sizes(self) -> Array:
        """The size that steps are sorted by [blocks, steps], int16: those that do not fit alone come last."""
        largest = _Bounds(*self.all_bounds.max(axis=3).astype(np.int16).transpose(2, 0, 1))
        large: Array = LARGEST + largest.sums
        return np.where(self.fits, np.maximum(largest.up, largest.down), large)

    def chosen(self, steps: Array) -> _Steps:
        """Return some steps [blocks, chosen] of each block."""
        at = np.arange(len(steps))[:, None]
        return _Steps(self.all_bounds[at, steps], self.fits[at, steps])


def blocks_at_a_time(steps: int) -> int:
    """Number of blocks of so many steps that `find_partners` should get at a time."""
    half = max(1, min(steps, MOST_MATCHED) // 2)
    return max(1, MOST_TRIED // (half * half))


def find_partners(weights: Array, loads: Array) -> Array:
    """Find the second of every step of a block that is the first of two partners, NONE for others.

    weights: int8 [blocks, steps, even]. loads: the bounds of their pairs, int16 [blocks, steps, 2, pairs].
    First ones fit alone. Seconds that do not are to change their signs. Returns [blocks, steps].
    """
    steps = _Steps.of(weights, loads)
    sizes = steps.sizes
    seconds, is_left = np.full(sizes.shape, NONE), np.ones(sizes.shape, bool)
    at = np.arange(len(sizes))[:, None]
    for _ in range(ROUNDS):
        left = int(is_left.sum(axis=1).max())
        # Those that have a partner come last.
        order = np.argsort(~is_left, axis=1, kind="stable")
        for stretch in np.array_split(np.arange(left), -(-left // MOST_MATCHED) or 1):
            near = order[:, stretch]
            keys = np.where(is_left[at, near], sizes[at, near], 3 * LARGEST)
            members = near[at, np.argsort(keys, axis=1, kind="stable")]
            half = members.shape[1] // 2
            low, high = members[:, :half], members[:, members.shape[1] - half :]
            # Those that have a partner come last, behind the ones that do not fit alone.
            free = replace(steps, fits=steps.fits & is_left)
            possible = _may_join(free.chosen(low), free.chosen(high)) & is_left[at, high][:, :, None]
            blocks, larger, smaller = _match(possible)
            first, second = low[blocks, smaller], high[blocks, larger]
            seconds[blocks, first] = second
            is_left[blocks, first] = is_left[blocks, second] = False
    return seconds


def _may_join(low: _Steps, high: _Steps) -> Array:
    """Find which steps may be joined, [blocks, high, low]: low ones that fit alone with high ones.

    High ones that fit alone are joined as they are. Signs of others are changed: both weights of a pair take
    the larger room, or each one of them.
    """
    ours, theirs = low.bounds, high.bounds
    # High steps that fit alone come first; where they end differs from block to block.
    fitting = high.fits.sum(axis=1)
    first, end = int(fitting.min()), int(fitting.max())
    possible = high.fits[:, :, None] & low.fits[:, None, :]
    joined, room = possible[:, :end], MOST - np.minimum(theirs[:2], MOST)[..., :end]
    for load, left in zip(np.concatenate(ours[:2]), np.concatenate(room), strict=True):
        joined &= load[:, None, :] <= left[:, :, None]
    balanced = ~high.fits[:, first:, None] & low.fits[:, None, :]
    rooms, sizes = ours[-2:], (theirs.larger, theirs.smaller, theirs.sums)
    for pair in zip(*rooms, *sizes, strict=True) if balanced.size else ():
        more, less = (room[:, None, :] for room in pair[:2])
        larger, smaller, both = (size[:, first:, None] for size in pair[2:])
        balanced &= (larger <= more) & ((smaller <= less) | (both <= more))
    possible[:, first:] |= balanced
    return possible


def _match(possible: Array) -> tuple[Array, Array, Array]:
    """Match rows with columns of each block where it is possible [blocks, rows, columns].

    Rows with the fewest choices choose first, each the column that the fewest others can take. Returns the
    block, row and column of every match.
    """
    every = np.arange(len(possible))
    wanted = possible.sum(axis=1, dtype=np.int16)
    result = np.full(possible.shape[:2], NONE)
    for row in np.argsort(possible.sum(axis=2), axis=1, kind="stable").T:
        choices = possible[every, row]
        costs = np.where(choices, wanted, NEVER)
        best = costs.argmin(axis=1)
        found = costs[every, best] < NEVER
        chosen = every[found], best[found]
        result[chosen[0], row[found]] = chosen[1]
        wanted -= choices
        wanted[chosen] = 2 * NEVER
    blocks, rows = np.nonzero(result != NONE)
    return blocks, rows, result[blocks, rows]
