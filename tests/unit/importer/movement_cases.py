"""Nodes that move data in every form that the operator sets have given them."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.unit.importer.cases import Case, ints, node

SHUFFLED = {"x": (2, 8, 4, 6)}
PARTS = [
    Case(
        "slice-backwards",
        node("Slice", "x", "s", "e", "a", "t"),
        (10, 13),
        constants={"s": ints(-1, 6), "e": ints(-(2**62), 0), "a": ints(1, 2), "t": ints(-1, -2)},
    ),
    Case(
        "split-one-used",
        helper.make_node("Split", ["x"], ["y", "w", "z"], axis=1),
        (11, 13),
    ),
    Case("split-attribute", helper.make_node("Split", ["x"], ["z", "y"], split=[2, 4], axis=1), (7, 11)),
    Case(
        "split-input",
        helper.make_node("Split", ["x", "s"], ["z", "y"], axis=-1),
        (13, 18),
        constants={"s": ints(3, 5)},
    ),
    Case("split-uneven", helper.make_node("Split", ["x"], ["z", "w", "y"], axis=-1, num_outputs=3), (18,)),
]
BORDERS = [
    *(
        Case(
            f"pad-{mode}-attributes",
            node("Pad", "x", pads=[0, 1, 0, 2, 0, 2, 1, 0], mode=mode),
            (7, 10),
        )
        for mode in ("reflect", "edge")
    ),
    *(
        Case(
            f"pad-{mode}",
            node("Pad", "x", "p", mode=mode),
            opsets,
            constants={"p": ints(0, 2, 3, 0, 1, 0, 4, 7)},
        )
        for mode, opsets in {"reflect": (11, 18), "edge": (11, 18), "wrap": (19, 21)}.items()
    ),
    Case("pad-negative", node("Pad", "x", "p"), (11, 13), constants={"p": ints(0, -1, 2, -3, 0, 1, -2, 0)}),
]
REPEATED = [
    Case("expand", node("Expand", "x", "s"), (8, 13), {"x": (3, 1, 5)}, {"s": ints(2, 1, 4, 1)}),
    Case("tile", node("Tile", "x", "r"), (7, 13), {"x": (2, 1, 3)}, {"r": ints(1, 4, 3)}),
    Case(
        "gather-matrix",
        node("Gather", "x", "i", axis=2),
        (7, 13),
        constants={"i": ints(3, 0, -1, 8).reshape(2, 2)},
    ),
]
BLOCKS = [
    Case("depth-to-space", node("DepthToSpace", "x", blocksize=2), (7, 13), SHUFFLED),
    Case("depth-to-space-crd", node("DepthToSpace", "x", blocksize=2, mode="CRD"), (11, 13), SHUFFLED),
    Case("space-to-depth", node("SpaceToDepth", "x", blocksize=2), (7, 13), SHUFFLED),
]
SMALL = {"x": (1, 2, 4, 5)}
SCALES = {
    "grow": np.array([1, 1, 2, 3], np.float32),
    "shrink": np.array([1, 1, 0.6, 0.5], np.float32),
    "both": np.array([1, 1, 2.3, 0.7], np.float32),
}
NONE = np.zeros(0, np.float32)
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
RESIZES = [
    *(
        Case(f"upsample-{mode}", node("Upsample", "x", "k", mode=mode), (9,), SMALL, {"k": SCALES["grow"]})
        for mode in ("nearest", "linear")
    ),
    Case("upsample-attribute", node("Upsample", "x", scales=[1.0, 1.0, 2.0, 2.0]), (7,), SMALL),
    *(
        Case(f"resize-10-{mode}-{name}", node("Resize", "x", "k", mode=mode), (10,), SMALL, {"k": scales})
        for name, scales in SCALES.items()
        for mode in ("nearest", "linear")
    ),
    *(
        Case(
            f"resize-nearest-{coordinates}-{rounding}-{name}",
            node(
                "Resize", "x", "roi", "k", coordinate_transformation_mode=coordinates, nearest_mode=rounding
            ),
            (13,) if coordinates != "half_pixel_symmetric" else (19,),
            SMALL,
            {"roi": NONE, "k": scales},
        )
        for name, scales in SCALES.items()
        for coordinates in COORDINATES
        for rounding in ROUNDINGS
    ),
    *(
        Case(
            f"resize-{mode}-{coordinates}-{name}",
            node("Resize", "x", "roi", "k", mode=mode, coordinate_transformation_mode=coordinates),
            (11, 13) if coordinates != "half_pixel_symmetric" else (19,),
            SMALL,
            {"roi": NONE, "k": scales},
        )
        for name, scales in SCALES.items()
        for coordinates in COORDINATES
        for mode in ("linear", "cubic")
    ),
    Case(
        "resize-cubic-excluding",
        node("Resize", "x", "roi", "k", mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5),
        (11, 18),
        SMALL,
        {"roi": NONE, "k": SCALES["both"]},
    ),
    *(
        Case(
            f"resize-crop-{mode}",
            node(
                "Resize",
                "x",
                "roi",
                "k",
                "n",
                mode=mode,
                coordinate_transformation_mode="tf_crop_and_resize",
                extrapolation_value=7.0,
            ),
            (11, 13),
            SMALL,
            {
                "roi": np.array([0, 0, 0.2, -0.3, 1, 1, 0.9, 1.2], np.float32),
                "k": NONE,
                "n": ints(1, 2, 3, 7),
            },
        )
        for mode in ("nearest", "linear")
    ),
    Case(
        "resize-axes",
        node("Resize", "x", "", "", "n", axes=[3, 2], mode="linear"),
        (18, 19),
        SMALL,
        {"n": ints(7, 9)},
    ),
    *(
        Case(
            f"resize-{policy}",
            node("Resize", "x", "", "", "n", axes=[2, 3], keep_aspect_ratio_policy=policy, mode="linear"),
            (18, 19),
            SMALL,
            {"n": ints(7, 9)},
        )
        for policy in ("not_larger", "not_smaller")
    ),
    Case(
        "resize-one-axis",
        node("Resize", "x", "roi", "k", mode="linear"),
        (11,),
        {"x": (2, 3, 5)},
        {"roi": NONE, "k": np.array([1, 1, 2.5], np.float32)},
    ),
]
CASES = [*PARTS, *BORDERS, *REPEATED, *BLOCKS, *RESIZES]
