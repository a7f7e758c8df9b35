"""Sliding windows over the two spatial axes of NCHW images: sizes, padding, views.

Pads are in ONNX order (top, left, bottom, right).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from qglow.core.types import Array

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]


def output_extent(
    size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1, ceil_mode: bool = False
) -> int:
    """Number of windows along one axis.

    In ceil mode a last window may hang over the end, but not start beyond the padding before
    it and the input. Raises ValueError when not even one window fits.
    """
    room = size + before + after - (dilation * (kernel - 1) + 1)
    if room < 0:
        raise ValueError(f"a window of {kernel}, dilation {dilation}, does not fit {size}+{before}+{after}")
    count = room // stride + 1
    overhangs = ceil_mode and room % stride != 0 and count * stride < size + before
    return count + 1 if overhangs else count


def output_extents(
    size: Pair, kernel: Pair, strides: Pair, pads: Pads, dilations: Pair = (1, 1), ceil_mode: bool = False
) -> Pair:
    """Number of windows along height and width."""
    top, left, bottom, right = pads
    return (
        output_extent(size[0], kernel[0], strides[0], top, bottom, dilations[0], ceil_mode),
        output_extent(size[1], kernel[1], strides[1], left, right, dilations[1], ceil_mode),
    )


def pad_for_windows(
    x: Array, kernel: Pair, strides: Pair, pads: Pads, dilations: Pair, extents: Pair, value: Any
) -> Array:
    """`x` with `value` around it, as far as the windows reach (overhang of ceil mode included)."""
    top, left = pads[0], pads[1]
    reach = [(extents[i] - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1 for i in range(2)]
    bottom = max(reach[0] - top - x.shape[2], 0)
    right = max(reach[1] - left - x.shape[3], 0)
    if not (top or left or bottom or right):
        return x
    width = ((0, 0), (0, 0), (top, bottom), (left, right))
    return np.pad(x, width, constant_values=value)


def taps(padded: Array, kernel: Pair, strides: Pair, dilations: Pair, extents: Pair) -> Iterator[Array]:
    """Yield for every kernel position, (h, w) ascending, the view N x C x OH x OW that it reads."""
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            y, x = i * dilations[0], j * dilations[1]
            rows = slice(y, y + (extents[0] - 1) * strides[0] + 1, strides[0])
            columns = slice(x, x + (extents[1] - 1) * strides[1] + 1, strides[1])
            yield padded[:, :, rows, columns]
