"""Every operation, one file a family; importing the package registers all of them."""

from __future__ import annotations

from qglow.instructions.ops import (
    blocks,
    conv,
    elementwise,
    functions,
    hosted,
    linear,
    logic,
    memory,
    movement,
    normalization,
    pool,
    profile,
    quantize,
    ranking,
    recurrence,
    reduce,
    resize,
    rows,
    selection,
    softmax,
)

__all__ = [
    "blocks",
    "conv",
    "elementwise",
    "functions",
    "hosted",
    "linear",
    "logic",
    "memory",
    "movement",
    "normalization",
    "pool",
    "profile",
    "quantize",
    "ranking",
    "recurrence",
    "reduce",
    "resize",
    "rows",
    "selection",
    "softmax",
]
