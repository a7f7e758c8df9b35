"""Convolutions and pools over three spatial dimensions, and pools of powers."""

from __future__ import annotations

from tests.unit.importer.cases import Case, floats, node

VOLUME = {"x": (2, 4, 6, 7, 5)}
POOL = {"kernel_shape": [3, 2, 3], "strides": [2, 1, 2]}
CASES = [
    Case(
        "conv-3d", node("Conv", "x", "w", "b"), (11, 22), VOLUME, {"w": floats(3, 4, 3, 3, 2), "b": floats(3)}
    ),
    Case(
        "conv-3d-group",
        node("Conv", "x", "w", group=2, strides=[2, 1, 2], dilations=[2, 1, 1], pads=[1, 2, 0, 2, 0, 1]),
        (11,),
        VOLUME,
        {"w": floats(6, 2, 2, 3, 2)},
    ),
    Case("conv-3d-depthwise", node("Conv", "x", "w", group=4), (11,), VOLUME, {"w": floats(4, 1, 3, 3, 3)}),
    Case(
        "conv-3d-same",
        node("Conv", "x", "w", auto_pad="SAME_UPPER", strides=[2, 2, 2]),
        (11,),
        VOLUME,
        {"w": floats(2, 4, 3, 2, 4)},
    ),
    Case(
        "conv-3d-bias",
        node("Conv", "x", "w", "b"),
        (11,),
        {**VOLUME, "b": (3,)},
        {"w": floats(3, 4, 1, 2, 2)},
    ),
    Case(
        "conv-3d-computed",
        node("Conv", "x", "w", group=2, strides=[2, 1, 2], pads=[1, 0, 1, 1, 2, 0]),
        (11,),
        {**VOLUME, "w": (6, 2, 2, 3, 2)},
    ),
    Case("max-3d", node("MaxPool", "x", pads=[1, 0, 1, 1, 1, 0], **POOL), (8, 12), VOLUME),
    Case("max-3d-ceil", node("MaxPool", "x", dilations=[1, 2, 1], ceil_mode=1, **POOL), (12,), VOLUME),
    Case("average-3d", node("AveragePool", "x", pads=[1, 0, 1, 1, 1, 0], **POOL), (7, 19), VOLUME),
    Case(
        "average-3d-padded",
        node("AveragePool", "x", pads=[1, 0, 1, 1, 1, 0], count_include_pad=1, **POOL),
        (11,),
        VOLUME,
    ),
    Case("lp", node("LpPool", "x", kernel_shape=[3, 2], pads=[1, 0, 1, 1]), (11, 18)),
    Case("lp-1d", node("LpPool", "x", kernel_shape=[3], strides=[2], p=1), (11,), {"x": (2, 6, 19)}),
    Case("lp-ceil", node("LpPool", "x", kernel_shape=[3, 2], strides=[2, 3], ceil_mode=1), (18, 22)),
    Case(
        "lp-ceil-none-in-padding",
        node("LpPool", "x", kernel_shape=[1, 2], strides=[2, 1], ceil_mode=1),
        (18,),
    ),
    Case(
        "lp-ceil-padded",
        node("LpPool", "x", kernel_shape=[2, 3], strides=[3, 2], pads=[1, 1, 1, 0], ceil_mode=1),
        (18,),
    ),
    Case("lp-3d", node("LpPool", "x", p=3, **POOL), (11,), VOLUME),
    Case("global-lp", node("GlobalLpPool", "x", p=3), (7, 11)),
]
