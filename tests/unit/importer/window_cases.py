"""Convolutions and pools over one spatial dimension, dilated and rounded-up windows, global pools."""

from __future__ import annotations

from tests.unit.importer.cases import Case, floats, node

LINE = {"x": (2, 6, 19)}
POOL = {"kernel_shape": [3], "strides": [2]}
CASES = [
    Case("conv-1d", node("Conv", "x", "w", "b"), (7, 11, 22), LINE, {"w": floats(4, 6, 5), "b": floats(4)}),
    Case(
        "conv-1d-group",
        node("Conv", "x", "w", group=3, strides=[2], dilations=[2], pads=[3, 1]),
        (7, 21),
        LINE,
        {"w": floats(9, 2, 4)},
    ),
    *(
        Case(
            f"conv-1d-{mode}",
            node("Conv", "x", "w", auto_pad=mode, strides=[2]),
            (7, 21),
            LINE,
            {"w": floats(4, 6, 4)},
        )
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    Case("conv-1d-computed", node("Conv", "x", "w"), (7, 21), {**LINE, "w": (4, 6, 3)}),
    Case("conv-1d-bias", node("Conv", "x", "w", "b"), (7, 21), {**LINE, "b": (4,)}, {"w": floats(4, 6, 3)}),
    Case(
        "conv-bias",
        node("Conv", "x", "w", "b"),
        inputs={"x": (1, 6, 9, 8), "b": (4,)},
        constants={"w": floats(4, 6, 3, 3)},
    ),
    Case("max-1d", node("MaxPool", "x", pads=[1, 1], **POOL), (8, 12), LINE),
    Case("max-1d-dilated", node("MaxPool", "x", dilations=[3], ceil_mode=1, **POOL), (10, 12), LINE),
    Case("average-1d", node("AveragePool", "x", pads=[1, 0], **POOL), (7, 19), LINE),
    Case(
        "average-dilated",
        node("AveragePool", "x", kernel_shape=[2, 3], dilations=[3, 2], pads=[1, 2, 1, 0]),
        (19, 22),
    ),
    Case(
        "average-ceil-counted",
        node(
            "AveragePool",
            "x",
            kernel_shape=[3, 3],
            strides=[2, 3],
            pads=[1, 1, 1, 1],
            ceil_mode=1,
            count_include_pad=1,
        ),
        (19, 22),
    ),
    *(
        Case(f"{name}-{len(shape)}".lower(), node(name, "x"), (7, 22), {"x": shape})
        for name in ("GlobalAveragePool", "GlobalMaxPool")
        for shape in ((2, 3, 7), (2, 3, 4, 5), (2, 3, 4, 2, 3))
    ),
]
