"""Factors of channels that a search found, for other runs with the same graph, statistics and recipe."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qglow.quantization.channel_factors import Factors

KnownFactors = dict[str, Factors | str]
"""Factors of a scope, or why it has none, by the name of the node that it was found from."""
_NUMBERS = np.dtype("<f8")


@dataclass(frozen=True)
class KeptFactors:
    """One of `KnownFactors` in a form that a file holds.

    refusal: why there are no factors, or "". numbers: exponent, noise before and after, then the factors, as
    float64 in base64.
    """

    node: str
    refusal: str
    numbers: str = ""
    free: bool = False

    def factors(self) -> Factors | str:
        """Result of the search. Raises ValueError for numbers that are none."""
        if self.refusal:
            return self.refusal
        alpha, before, after, *_ = numbers = np.frombuffer(base64.b64decode(self.numbers), _NUMBERS)
        channels = numbers[3:].astype(np.float64)
        return Factors(channels, float(alpha), float(before), float(after), self.free)


def kept_factors(known: Mapping[str, Factors | str]) -> tuple[KeptFactors, ...]:
    """All of them, in order."""
    return tuple(_kept(node, found) for node, found in known.items())


def known_factors(kept: tuple[KeptFactors, ...]) -> KnownFactors:
    """The reverse of `kept_factors`. Raises ValueError for what that does not write."""
    return {each.node: each.factors() for each in kept}


def _kept(node: str, found: Factors | str) -> KeptFactors:
    if isinstance(found, str):
        return KeptFactors(node, found)
    numbers = np.array([found.alpha, found.before, found.after, *found.channels], _NUMBERS)
    return KeptFactors(node, "", base64.b64encode(numbers.tobytes()).decode("ascii"), found.free)
