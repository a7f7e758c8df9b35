"""Every operation, one file a family; importing the package registers all of them."""

from __future__ import annotations

from qglow.instructions.ops import (
    activation,
    conv,
    elementwise,
    linear,
    memory,
    movement,
    pool,
    profile,
    quantize,
    softmax,
)

__all__ = [
    "activation",
    "conv",
    "elementwise",
    "linear",
    "memory",
    "movement",
    "pool",
    "profile",
    "quantize",
    "softmax",
]
