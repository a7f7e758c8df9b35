"""Images that are read between their pixels."""

from __future__ import annotations

import numpy as np

from tests.unit.importer.cases import RNG, Case, floats, ints, node

PICTURE = {"x": (2, 3, 5, 6)}
GRID = {"g": RNG.uniform(-1.6, 1.6, (2, 4, 7, 2)).astype(np.float32)}
CUBE = {"g": RNG.uniform(-1.3, 1.3, (2, 2, 3, 4, 3)).astype(np.float32)}
REGIONS = {
    "r": np.array([[0, 0, 4.5, 3], [2.25, -1, 5.5, 4.75], [1, 1, 1.2, 1.1]], np.float32),
    "i": ints(0, 1, 1),
}
CASES = [
    *(
        Case(
            f"grid-{mode}-{padding}-{aligned}",
            node("GridSample", "x", "g", mode=mode, padding_mode=padding, align_corners=aligned),
            (16,),
            PICTURE,
            GRID,
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    ),
    *(
        Case(
            f"grid-volume-{mode}-{padding}",
            node("GridSample", "x", "g", mode=mode, padding_mode=padding, align_corners=1),
            (20,),
            {"x": (2, 2, 3, 4, 5)},
            CUBE,
        )
        for mode in ("linear", "nearest")
        for padding in ("zeros", "border", "reflection")
    ),
    Case("grid-of-one", node("GridSample", "x", "g", align_corners=1), (16,), {"x": (2, 3, 1, 4)}, GRID),
    *(
        Case(
            f"regions-{mode}",
            node(
                "RoiAlign",
                "x",
                "r",
                "i",
                mode=mode,
                output_height=2,
                output_width=3,
                sampling_ratio=2,
                spatial_scale=0.9,
            ),
            (10, 16),
            PICTURE,
            REGIONS,
        )
        for mode in ("avg", "max")
    ),
    Case(
        "regions-not-shifted",
        node(
            "RoiAlign",
            "x",
            "r",
            "i",
            sampling_ratio=1,
            coordinate_transformation_mode="output_half_pixel",
            output_width=4,
        ),
        (16,),
        PICTURE,
        REGIONS,
    ),
    *(
        Case(
            f"affine-{aligned}",
            node("AffineGrid", "t", "s", align_corners=aligned),
            (20,),
            {"t": (2, 2, 3)},
            {"s": ints(2, 3, 4, 5)},
        )
        for aligned in (0, 1)
    ),
    Case(
        "deformed",
        node("DeformConv", "x", "w", "o", "b", pads=[1, 0, 1, 2], strides=[2, 1], dilations=[1, 2]),
        (19, 22),
        {"x": (2, 4, 6, 7), "o": (2, 12, 3, 7)},
        {"w": floats(3, 4, 3, 2), "b": floats(3)},
    ),
    Case(
        "deformed-groups",
        node("DeformConv", "x", "w", "o", "", "m", group=2, offset_group=4),
        (19,),
        {"x": (2, 8, 5, 4), "o": (2, 32, 4, 3), "m": (2, 16, 4, 3)},
        {"w": floats(6, 4, 2, 2)},
    ),
    Case(
        "deformed-computed",
        node("DeformConv", "x", "w", "o", "b"),
        (19,),
        {"x": (1, 2, 4, 4), "w": (3, 2, 2, 2), "o": (1, 8, 3, 3), "b": (3,)},
    ),
    Case("affine-volume", node("AffineGrid", "t", "s"), (20,), {"t": (1, 3, 4)}, {"s": ints(1, 2, 2, 3, 4)}),
]
