"""Import of deformable convolutions. https://onnx.ai/onnx/operators/onnx__DeformConv.html

Each tap of a window reads the image beside its own place, as far off as the model computes, between pixels.
What the taps read becomes the channels of an image, over which the weights are a convolution of one pixel.
"""

from __future__ import annotations

import math

import numpy as np

from qglow.core.memory import require_more_memory
from qglow.core.types import Array
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.graph.traits import SlidingWindow
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.sampling import PixelPlaces, padded_taps, sampled
from qglow.importer.windows import convolved, read_window
from qglow.numerics.windows import Pair

BIAS, MASK = 3, 4
"""Numbers of the inputs that may be missing."""
PIXEL = SlidingWindow((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))


def import_deform_conv(node: ImportNode) -> None:
    """Import DeformConv over images."""
    node.require(
        node.rank() == 4 and node.rank(1) == 4, f"input {node.kind()}; images [N, C, H, W] are supported"
    )
    x, w, offset = node.value(0), node.value(1), node.value(2)
    batch, channels = x.type.shape[:2]
    filters, depth, *kernel = w.type.shape
    group, groups = node.integer("group", 1), node.integer("offset_group", 1)
    stated = node.integers("kernel_shape", tuple(kernel))
    node.require(stated == tuple(kernel), f"kernel_shape {list(stated)} differs from the weight's {kernel}")
    window = read_window(node, tuple(kernel))
    sizes, taps = _sizes(node, x.type.shape[2:], window), math.prod(kernel)
    node.require(
        min(group, groups) > 0 and channels == depth * group and channels % groups == 0,
        f"weights {list(w.type.shape)} and {groups} groups of offsets do not fit {channels} channels",
    )
    wanted = (batch, 2 * groups * taps, *sizes)
    node.require(offset.type.shape == wanted, f"offsets are {offset.type}; shape {list(wanted)} is needed")
    require_more_memory(16 * batch * channels * taps * math.prod(sizes), f"node '{node.name}'")
    read = _read(node, x, offset, window, groups)
    mask = node.optional(MASK)
    if mask is not None:
        shape = (batch * groups, taps, *sizes, 1)
        node.require(math.prod(shape) == math.prod(mask.type.shape), f"the mask is {mask.type}")
        read = node.emit(Mul(), read, node.emit(Reshape(shape=shape), mask, part="mask"), part="masked")
    first = node.emit(Transpose(perm=(0, 4, 1, 2, 3)), read, part="channels_first")
    image = node.emit(Reshape(shape=(batch, channels * taps, *sizes)), first, part="taps")
    weights = node.emit(Reshape(shape=(filters, depth * taps, 1, 1)), w, part="weights")
    convolved(node, PIXEL, group, image, weights, bias_index=BIAS)


def _sizes(node: ImportNode, extents: tuple[int, ...], window: SlidingWindow) -> Pair:
    top, left, bottom, right = window.pads
    padded = (extents[0] + top + bottom, extents[1] + left + right)
    reach = [(k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations, strict=True)]
    node.require(
        reach[0] <= padded[0] and reach[1] <= padded[1], "the window is larger than the padded input"
    )
    first, second = (
        (size - span) // step + 1 for size, span, step in zip(padded, reach, window.strides, strict=True)
    )
    return first, second


def _read(node: ImportNode, x: Value, offset: Value, window: SlidingWindow, groups: int) -> Value:
    """Values that taps read, [images, taps, height, width, channels]: an image for each group of channels."""
    batch, channels, *extents = x.type.shape
    height, width = offset.type.shape[2:]
    images, taps = batch * groups, math.prod(window.kernel)
    parted = node.emit(Reshape(shape=(images, channels // groups, *extents)), x, part="images")
    shape = (images, taps, 2, height, width)
    offsets = node.emit(Reshape(shape=shape), offset, part="offsets")
    places, along = PixelPlaces(node), []
    for axis, size in enumerate(extents):
        starts, ends = (0, 0, axis, 0, 0), (images, taps, axis + 1, height, width)
        column = node.emit(Slice(starts, ends, (1,) * 5), offsets, part=f"offset{axis}")
        moved = node.emit(Reshape(shape=(images, taps, height, width)), column, part=f"moved{axis}")
        fixed = node.part_constant(f"places{axis}", _places(window, axis, (height, width)))
        place = node.emit(Add(), moved, fixed, part=f"place{axis}")
        along.append(padded_taps(places, place, size, "linear", "zeros", True))
    numbers = node.part_constant("numbers", np.arange(images, dtype=np.int64).reshape(images, 1, 1, 1))
    return sampled(places, numbers, extents, along, picture=parted)


def _places(window: SlidingWindow, axis: int, sizes: Pair) -> Array:
    """Places of the taps along an axis without offsets, float32 [1, taps, height or 1, width or 1]."""
    starts = np.arange(sizes[axis]) * window.strides[axis] - window.pads[axis]
    of_tap = np.indices(window.kernel)[axis].reshape(-1) * window.dilations[axis]
    shape = (1, len(of_tap), -1, 1) if axis == 0 else (1, len(of_tap), 1, -1)
    return np.asarray(np.add.outer(of_tap, starts).reshape(shape), np.float32)


RULES: dict[str, ImportRule] = {"DeformConv": ImportRule(import_deform_conv, newest=22)}
