"""Constants of sizes far below the bound, which tell what only these change: `min(length, 64)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qglow.graph.graph import Value


@dataclass(frozen=True, eq=False)
class SmallConstants:
    """Constants, by name, of a graph for these sizes of its dimensions, whose nodes may be others."""

    sizes: Mapping[str, int]
    constants: Mapping[str, Value]

    def changes(self, value: Value) -> bool:
        """Whether a constant of the same type has other bits."""
        own = self.constants.get(value.name)
        return own is not None and own.type == value.type and not same_bits(own, value)

    def has_number(self, value: Value) -> bool:
        """Whether a constant of one number is one of the same number, as far as it is known."""
        own = self.constants.get(value.name)
        if own is None or own.data is None or value.data is None or not own.data.size:
            return True
        return np.unique(own.data).tobytes() == np.unique(value.data).tobytes()


def same_bits(first: Value, second: Value) -> bool:
    """Whether two constants have the same bits and parameters."""
    a, b = first.data, second.data
    if a is b and first.type == second.type:
        return True
    return first.type == second.type and a is not None and b is not None and a.tobytes() == b.tobytes()
