"""Noise of each output relative to its power, over several runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from qglow.core.types import Array

_OTHERS = 0.1
"""Weight of the mean over all outputs relative to the worst one."""


@dataclass
class OutputNoise:
    """Sums of squares by output: `power` of the float model's output, `noise` of the difference from it.

    For integer outputs, `power` is the number of elements and `noise` the number of those that differ.
    """

    power: dict[str, float] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def joined(parts: Iterable[OutputNoise]) -> OutputNoise:
        """The sums of all parts."""
        found = OutputNoise()
        for part in parts:
            for name, power in part.power.items():
                found._count(name, power, part.noise[name])
        return found

    def add(self, given: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
        """Add the outputs of a run; elements that are not finite in `expected` are ignored."""
        for name, wanted in expected.items():
            if wanted.dtype.kind != "f":
                self._count(name, float(wanted.size), float(np.count_nonzero(given[name] != wanted)))
                continue
            real = np.isfinite(wanted)
            reals, found = wanted[real].astype(np.float64), given[name][real].astype(np.float64)
            with np.errstate(all="ignore"):
                error = float(np.sum(np.square(found - reals)))
            self._count(name, float(np.sum(np.square(reals))), error if math.isfinite(error) else math.inf)

    @property
    def shares(self) -> dict[str, float]:
        """Noise over power by output; outputs that are always zero are left out."""
        return {name: self.noise[name] / power for name, power in self.power.items() if power > 0.0}

    @property
    def worst(self) -> float:
        """The largest share; 0 where no output has any power."""
        return max(self.shares.values(), default=0.0)

    @property
    def total(self) -> float:
        """The sum of all shares: what helps one output counts, even if another one is as bad."""
        return math.fsum(self.shares.values())

    @property
    def score(self) -> float:
        """Figure to compare settings by, lower is better: the worst output counts, the others a little."""
        shares = self.shares
        return self.worst + _OTHERS * sum(shares.values()) / max(len(shares), 1)

    def _count(self, name: str, power: float, noise: float) -> None:
        self.power[name] = self.power.get(name, 0.0) + power
        self.noise[name] = self.noise.get(name, 0.0) + noise
