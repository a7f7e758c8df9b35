"""Transposed convolutions: strides, pads, output_padding, output_shape, auto_pad, groups, dilations."""

from __future__ import annotations

from typing import Any

from tests.unit.importer.cases import Case, floats, node

OPSETS = (7, 11, 22)
W = {"w": floats(6, 4, 3, 3), "b": floats(4)}
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strides": {"strides": [2, 3]},
    "pads": {"strides": [2, 2], "pads": [1, 0, 2, 1]},
    "many-pads": {"strides": [2, 2], "pads": [3, 4, 3, 2]},
    "output-padding": {"strides": [3, 2], "pads": [1, 1, 1, 1], "output_padding": [2, 1]},
    "dilations": {"strides": [2, 1], "dilations": [2, 3]},
    "upper": {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    "lower": {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    "upper-stride-above-kernel": {"strides": [4, 5], "auto_pad": "SAME_UPPER"},
    "lower-stride-above-kernel": {"strides": [5, 4], "auto_pad": "SAME_LOWER", "dilations": [2, 1]},
    "valid": {"strides": [2, 2], "auto_pad": "VALID"},
    "output-shape": {"strides": [2, 2], "output_shape": [18, 15]},
    "wide-strides": {"strides": [5, 4]},
}
CASES = [
    *(
        Case(f"transposed-{name}", node("ConvTranspose", "x", "w", "b", **form), OPSETS, constants=W)
        for name, form in FORMS.items()
    ),
    Case(
        "transposed-group",
        node("ConvTranspose", "x", "w", group=3, strides=[2, 2]),
        OPSETS,
        constants={"w": floats(6, 2, 2, 3)},
    ),
    Case(
        "transposed-depthwise",
        node("ConvTranspose", "x", "w", group=6, strides=[2, 2], pads=[1, 1, 1, 1]),
        OPSETS,
        constants={"w": floats(6, 1, 4, 4)},
    ),
    Case(
        "transposed-line",
        node("ConvTranspose", "x", "w", strides=[2], pads=[1, 0], output_padding=[1]),
        OPSETS,
        {"x": (2, 6, 9)},
        {"w": floats(6, 5, 3)},
    ),
    Case(
        "transposed-computed-bias",
        node("ConvTranspose", "x", "w", "b", strides=[2, 2]),
        (11,),
        {"x": (1, 6, 4, 4), "b": (4,)},
        {"w": floats(6, 4, 3, 3)},
    ),
    Case(
        "transposed-computed", node("ConvTranspose", "x", "w"), (11,), {"x": (1, 2, 4, 4), "w": (2, 3, 2, 2)}
    ),
    Case(
        "transposed-computed-group",
        node("ConvTranspose", "x", "w", "b", group=2, strides=[2, 3], pads=[1, 0, 0, 2]),
        (11,),
        {"x": (2, 4, 4, 3), "w": (4, 3, 3, 3), "b": (6,)},
    ),
    Case(
        "transposed-volume",
        node("ConvTranspose", "x", "w", "b", strides=[2, 1, 3], pads=[1, 0, 2, 0, 1, 1], dilations=[1, 2, 1]),
        (11, 22),
        {"x": (2, 4, 3, 4, 5)},
        {"w": floats(4, 3, 2, 3, 2), "b": floats(3)},
    ),
    Case(
        "transposed-volume-cut",
        node("ConvTranspose", "x", "w", group=2, pads=[3, 4, 3, 2, 3, 1]),
        (11,),
        {"x": (1, 4, 7, 8, 6)},
        {"w": floats(4, 2, 2, 2, 3)},
    ),
    Case(
        "transposed-volume-computed",
        node("ConvTranspose", "x", "w", strides=[2, 2, 2], output_padding=[1, 0, 1]),
        (11,),
        {"x": (1, 2, 3, 2, 3), "w": (2, 3, 2, 3, 2)},
    ),
]
