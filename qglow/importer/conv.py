"""Import of convolutions. https://onnx.ai/onnx/operators/onnx__Conv.html"""

from __future__ import annotations

import itertools
import math

from qglow.graph.graph import Value
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.movement import Pad, Slice
from qglow.graph.ops.shape import Reshape
from qglow.graph.traits import SlidingWindow
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.shape import joined
from qglow.importer.volumes import RANK, emit_convolution_over_volume
from qglow.importer.windows import emit_convolution, image, is_read_from_constants, read_window

MOST_TAPS = 256
"""Taps of computed weights: each is cut out of the image by a node of its own."""


def import_conv(node: ImportNode) -> None:
    """Import Conv over one to three spatial dimensions; auto_pad is resolved to explicit pads."""
    kernel, group = node.kind(1).shape[2:], node.integer("group", 1)
    stated = node.integers("kernel_shape", kernel)
    node.require(stated == kernel, f"kernel_shape {list(stated)} differs from the weight's {list(kernel)}")

    def made(window: SlidingWindow) -> Conv:
        return Conv(strides=window.strides, pads=window.pads, dilations=window.dilations, group=group)

    if node.rank() == RANK:
        emit_convolution_over_volume(node, kernel, made)
        return
    window = read_window(node, kernel)
    if _is_known(node.value(1)):
        emit_convolution(node, made(window), image(node), image(node, 1))
    else:
        emit_product(node, window, group)


def _is_known(weights: Value) -> bool:
    return weights.is_constant or is_read_from_constants(weights)


def emit_product(node: ImportNode, window: SlidingWindow, group: int) -> None:
    """Add a convolution with computed weights as a product of matrices for each group.

    What the window sees of the image is one row for each channel and tap, cut out by a slice for each tap.
    """
    x, w = image(node), image(node, 1)
    batch, channels, *extents = x.type.shape
    filters, depth, *kernel = w.type.shape
    taps = math.prod(kernel)
    fits = group > 0 and channels == depth * group and filters % max(group, 1) == 0
    node.require(fits, f"weights {list(w.type.shape)} do not fit {channels} channels in {group} groups")
    node.require(taps <= MOST_TAPS, f"weights are computed and have {taps} taps; up to {MOST_TAPS}")
    top, left, bottom, right = window.pads
    if any(window.pads):
        x = node.emit(Pad((0, 0, top, left, 0, 0, bottom, right)), x, part="pad")
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, window.dilations, strict=True)]
    padded = (extents[0] + top + bottom, extents[1] + left + right)
    sizes = [(e - s) // step + 1 for e, s, step in zip(padded, spans, window.strides, strict=True)]
    pixels = math.prod(sizes)
    seen: list[Value] = []
    for tap in itertools.product(*map(range, kernel)):
        starts = [t * d for t, d in zip(tap, window.dilations, strict=True)]
        ends = [b + (n - 1) * step + 1 for b, n, step in zip(starts, sizes, window.strides, strict=True)]
        steps = (1, 1, *window.strides)
        cut = Slice((0, 0, *starts), (batch, channels, *ends), steps)
        part = node.emit(cut, x, part=f"tap{len(seen)}")
        seen.append(node.emit(Reshape((batch, channels, 1, pixels)), part, part=f"row{len(seen)}"))
    rows = joined(node, seen, "rows", axis=2) if taps > 1 else seen[0]
    columns = node.emit(Reshape((batch, group, depth * taps, pixels)), rows, part="columns")
    matrix = node.emit(Reshape((1, group, filters // group, depth * taps)), w, part="matrix")
    product = node.emit(MatMul(), matrix, columns, part="product")
    shape = (batch, filters, *(sizes if node.rank() > 3 else sizes[1:]))
    bias = node.optional(2)
    if bias is None:
        node.emit(Reshape(shape), product)
        return
    node.require(bias.type.shape == (filters,), f"bias {list(bias.type.shape)} is not [{filters}]")
    image_of = node.emit(Reshape(shape), product, part="image")
    node.emit(Add(), image_of, node.emit(Reshape((1, filters, *[1] * (len(shape) - 2))), bias, part="bias"))


RULES: dict[str, ImportRule] = {"Conv": ImportRule(import_conv, newest=22)}
