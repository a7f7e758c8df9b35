"""Kinds of the steps of int8 weights that AVX2 multiplies as bytes, so that no sum saturates.

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

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qglow.core.types import Array

MOST_PAIR = 128
"""255 times this, and 255 times its negative, are in the range of int16."""
LEAST = -128
"""The weight whose negative is no int8."""
ROUNDS = 3
"""Number of times that steps look for another one to join as they are."""
FLIPPED_ROUNDS = 4
"""Number of times that steps look for another one to join with other signs."""
MOST_TRIED = 64
"""Most steps of which every one is tried with every other one."""


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


def unlike_signs(steps: Array) -> Array:
    """Mark weights [..., even] that change their signs so that no pair has two of one sign.

    Those of pairs of -128 cannot.
    """
    one, other = steps[..., 0::2], steps[..., 1::2]
    alike = ((one < 0) == (other < 0)) & (one != 0) & (other != 0)
    flips = np.stack([alike & (other == LEAST), alike & (other != LEAST)], axis=-1)
    return flips.reshape(steps.shape)


def _in_turns(first: Array, second: Array) -> Array:
    return np.stack([first, second], axis=1).reshape(-1)
