"""All operators, one file a family; importing this package registers them."""

from __future__ import annotations

from qglow.graph.ops import (
    blocks,
    control,
    conv,
    elementwise,
    functions,
    linear,
    logic,
    movement,
    normalization,
    opaque,
    pool,
    quantize,
    ranking,
    recurrence,
    reduce,
    resize,
    rows,
    selection,
    shape,
    softmax,
)

__all__ = [
    "blocks",
    "control",
    "conv",
    "elementwise",
    "functions",
    "linear",
    "logic",
    "movement",
    "normalization",
    "opaque",
    "pool",
    "quantize",
    "ranking",
    "recurrence",
    "reduce",
    "resize",
    "rows",
    "selection",
    "shape",
    "softmax",
]
