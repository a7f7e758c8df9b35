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

Steps that find no partner (step_partners) are multiplied alone, those that do not fit by a mask of their own:
two weights of unlike signs always fit. Only two neighbours of -128, which has no negative byte, take a step
for each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from qglow.core.types import Array
from qglow.targets.x86.step_partners import MOST, NONE, blocks_at_a_time, find_partners

LEAST = -128
"""The weight whose negative is no int8."""


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


def divide_steps(blocks: Array) -> list[Division]:
    """Divide the steps of the weights [blocks, vectors, steps, lanes, 4] of blocks into kinds."""
    result = []
    share = blocks_at_a_time(blocks.shape[2])
    for at in range(0, len(blocks), share):
        some = blocks[at : at + share]
        weights = some.swapaxes(1, 2).reshape(len(some), some.shape[2], -1)
        loads = pair_loads(weights)
        seconds, fits = find_partners(weights, loads), loads.max(axis=(2, 3)) <= MOST
        result += [_divide(*block) for block in zip(weights, fits, seconds, strict=True)]
    return result


def _divide(weights: Array, fits: Array, seconds: Array) -> Division:
    """Division of the steps [steps, even] of a block; `fits`: which fit alone."""
    first = np.flatnonzero(seconds != NONE)
    partners = np.stack([first, seconds[first]], axis=1)
    as_they_are = fits[partners[:, 1]]
    left = np.setdiff1d(np.arange(len(weights)), partners)
    single = left[fits[left]]
    even = len(single) // 2 * 2
    alone = np.sort(np.concatenate([single[even:], left[~fits[left]]]))
    least = weights[alone] == LEAST
    split = (least[:, 0::2] & least[:, 1::2]).any(axis=1)
    joined, flipped = (partners[kind].reshape(-1) for kind in (as_they_are, ~as_they_are))
    return Division(joined, flipped, single[:even], alone[~split], alone[split])


def changed_signs(first: Array, second: Array) -> Array:
    """Mark weights of `second` [steps, even] that change their signs to be joined with those of `first`."""
    loads = pair_loads(first)
    up, down = MOST - loads[:, 0], MOST - loads[:, 1]
    sizes = np.abs(second.astype(np.int16))
    one, other = sizes[:, 0::2], sizes[:, 1::2]
    apart = (one <= up) & (other <= down)
    swapped = (other <= up) & (one <= down)
    both = one + other <= up
    positive = np.stack([apart | ~swapped & both, ~apart & (swapped | both)], axis=-1)
    return np.asarray((positive.reshape(second.shape) == (second < 0)) & (second != 0))


def unlike_signs(steps: Array) -> Array:
    """Mark weights [..., even] that change their signs so that all pairs fit alone.

    Those of pairs of -128 cannot.
    """
    one, other = steps[..., 0::2], steps[..., 1::2]
    alike = ((one < 0) == (other < 0)) & (one != 0) & (other != 0)
    flips = np.stack([alike & (other == LEAST), alike & (other != LEAST)], axis=-1)
    return flips.reshape(steps.shape)
