"""The choice of the next token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.core.errors import UsageError
from qglow.core.types import Array


@dataclass(frozen=True)
class TokenSampling:
    """Rules of the choice. temperature 0: the likeliest token. top_k: the choice is among as many, 0 for all.

    The same seed gives the same tokens. Raises UsageError for rules that are none.
    """

    temperature: float = 0.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"temperature is {self.temperature}, it must be 0 or more", field="temperature")
        if self.top_k < 0:
            raise UsageError(f"top_k is {self.top_k}, it must be 0 or more", field="top_k")

    def choose(self, logits: Array, random: np.random.Generator) -> int:
        """The index of a token, of logits [vocabulary]; the lowest of equally likely ones."""
        if self.temperature == 0:
            return int(np.argmax(logits))
        scaled = np.asarray(logits, np.float64) / self.temperature
        if 0 < self.top_k < scaled.size:
            scaled[np.argsort(-scaled, kind="stable")[self.top_k :]] = -np.inf
        shares = np.exp(scaled - scaled.max())
        return int(random.choice(scaled.size, p=shares / shares.sum()))
