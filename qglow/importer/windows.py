"""Attributes that convolutions and pools share: kernel, strides, dilations, pads, auto_pad."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.importer.node import ImportNode

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]


@dataclass(frozen=True)
class Window:
    """A two-dimensional sliding window; pads are top, left, bottom, right."""

    kernel: Pair
    strides: Pair
    dilations: Pair
    pads: Pads


def read_window(node: ImportNode, kernel: tuple[int, ...]) -> Window:
    """The window of a node over its first input, which must have two spatial dimensions."""
    shape = node.kind(0).shape
    node.require(len(shape) == 4, f"input has {len(shape)} dimensions; four (NCHW) are supported")
    strides = node.integers("strides", (1, 1))
    dilations = node.integers("dilations", (1, 1))
    for name, values in (("kernel_shape", kernel), ("strides", strides), ("dilations", dilations)):
        node.require(len(values) == 2, f"{name} {list(values)} is not two-dimensional")
        node.require(min(values) >= 1, f"{name} {list(values)} is not positive")
    pads = _pads(node, shape[2:], kernel, strides, dilations)
    return Window(_pair(kernel), _pair(strides), _pair(dilations), pads)


def _pads(
    node: ImportNode,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> Pads:
    explicit = node.integers("pads", (0, 0, 0, 0))
    mode = node.string("auto_pad", "NOTSET")
    if mode == "NOTSET":
        node.require(len(explicit) == 4, f"pads {list(explicit)} are not two-dimensional")
        node.require(min(explicit) >= 0, f"pads {list(explicit)} are negative")
        return explicit[0], explicit[1], explicit[2], explicit[3]
    if mode == "VALID":
        return 0, 0, 0, 0
    node.require(
        mode in ("SAME_UPPER", "SAME_LOWER"),
        f"auto_pad {mode}; supported are NOTSET, VALID, SAME_UPPER, SAME_LOWER",
    )
    begins, ends = [], []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return begins[0], begins[1], ends[0], ends[1]


def _pair(values: tuple[int, ...]) -> Pair:
    return values[0], values[1]
