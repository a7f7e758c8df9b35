"""Elements at places that are constants."""

from __future__ import annotations

import numpy as np

from tests.unit.importer.cases import Case, floats, ints, node

CUBE = {"x": (3, 4, 5)}
PLACES = np.array([[[0], [2], [-1]], [[1], [1], [0]]], np.int64)
CASES = [
    Case(
        "compress",
        node("Compress", "x", "c", axis=2),
        (11,),
        constants={"c": np.array([1, 0, 1, 1], np.bool_)},
    ),
    Case("compress-flat", node("Compress", "x", "c"), (11,), constants={"c": np.arange(50) % 3 == 1}),
    Case("gather-elements", node("GatherElements", "x", "i", axis=1), (11, 13), CUBE, {"i": PLACES}),
    Case(
        "gather-elements-last",
        node("GatherElements", "x", "i", axis=-1),
        (13,),
        CUBE,
        {"i": np.array([[[4, 0, -2]]], np.int64)},
    ),
    Case(
        "gather-nd", node("GatherND", "x", "i"), (11, 13), CUBE, {"i": np.array([[2, 1], [-3, 3]], np.int64)}
    ),
    Case(
        "gather-nd-batch",
        node("GatherND", "x", "i", batch_dims=1),
        (13,),
        CUBE,
        {"i": np.array([[[1]], [[3]], [[-1]]], np.int64)},
    ),
    Case("gather-nd-rows", node("GatherND", "x", "i"), (13,), CUBE, {"i": np.array([[-1], [0]], np.int64)}),
    Case("gather-nd-whole", node("GatherND", "x", "i"), (13,), CUBE, {"i": np.array([[0, 1, 2]], np.int64)}),
    Case("reverse", node("ReverseSequence", "x", "n"), (10,), CUBE, {"n": ints(1, 3, 2, 0)}),
    Case(
        "reverse-rows",
        node("ReverseSequence", "x", "n", batch_axis=0, time_axis=1),
        (10,),
        CUBE,
        {"n": ints(4, 1, 2)},
    ),
    Case(
        "scatter", node("Scatter", "x", "i", "u", axis=1), (9, 10), CUBE, {"i": PLACES, "u": floats(2, 3, 1)}
    ),
    Case(
        "scatter-elements",
        node("ScatterElements", "x", "i", "u", axis=-1),
        (11, 18),
        CUBE,
        {"i": np.array([[[4, 0, -2]]], np.int64), "u": floats(1, 1, 3)},
    ),
    Case(
        "scatter-nd",
        node("ScatterND", "x", "i", "u"),
        (11, 18),
        CUBE,
        {"i": np.array([[2], [0]], np.int64), "u": floats(2, 4, 5)},
    ),
    Case(
        "scatter-nd-deep",
        node("ScatterND", "x", "i", "u"),
        (16,),
        CUBE,
        {"i": np.array([[[2, -1], [0, 0]]], np.int64), "u": floats(1, 2, 5)},
    ),
    *(
        Case(
            f"scatter-{reduction}",
            node("ScatterElements", "x", "i", "u", axis=1, reduction=reduction),
            (18,),
            CUBE,
            {"i": np.array([[[0], [-4], [3], [0]]], np.int64), "u": floats(1, 4, 1)},
        )
        for reduction in ("add", "mul", "max", "min")
    ),
    *(
        Case(
            f"scatter-nd-{reduction}",
            node("ScatterND", "x", "i", "u", reduction=reduction),
            (18,),
            CUBE,
            {"i": np.array([[2, 1], [0, 0], [-1, 1]], np.int64), "u": floats(3, 5)},
        )
        for reduction in ("add", "mul", "max", "min")
    ),
    Case(
        "col2im",
        node("Col2Im", "x", "s", "b", pads=[0, 1, 1, 0], strides=[1, 2], dilations=[2, 1]),
        (18,),
        {"x": (2, 12, 12)},
        {"s": ints(5, 6), "b": ints(2, 3)},
    ),
    Case("col2im-line", node("Col2Im", "x", "s", "b"), (18,), {"x": (1, 6, 4)}, {"s": ints(6), "b": ints(3)}),
]
