"""Convolutions whose weights are computed while the model runs, as products of matrices."""

from __future__ import annotations

import itertools
import math

from qglow.graph.graph import Value
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.movement import Pad, Slice
from qglow.graph.ops.shape import Reshape
from qglow.graph.traits import SlidingWindow
from qglow.importer.node import ImportNode
from qglow.importer.shape import joined

MOST_TAPS = 256
"""Taps of computed weights: each is cut out of the image by a node of its own."""


def is_known(value: Value) -> bool:
    """Whether a value is constant, or read from constants alone."""
    return value.is_constant or is_read_from_constants(value)


def is_read_from_constants(value: Value) -> bool:
    """Whether a node reads it from constants alone: a bias in integers, with its scale."""
    producer = value.producer
    return producer is not None and all(each is None or each.is_constant for each in producer.inputs)


def emit_product(node: ImportNode, window: SlidingWindow, group: int, x: Value, w: Value, part: str) -> Value:
    """Add a convolution without a bias as a product of matrices for each group.

    What the window sees of the image is one row for each channel and tap, cut out by a slice for each tap.
    """
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
    seen: list[Value] = []
    for tap in itertools.product(*map(range, kernel)):
        starts = [t * d for t, d in zip(tap, window.dilations, strict=True)]
        ends = [b + (n - 1) * step + 1 for b, n, step in zip(starts, sizes, window.strides, strict=True)]
        steps = (1, 1, *window.strides)
        cut = Slice((0, 0, *starts), (batch, channels, *ends), steps)
        tap_of = node.emit(cut, x, part=f"tap{len(seen)}")
        shape = (batch, channels, 1, math.prod(sizes))
        seen.append(node.emit(Reshape(shape), tap_of, part=f"row{len(seen)}"))
    rows = joined(node, seen, "rows", axis=2) if taps > 1 else seen[0]
    columns = node.emit(Reshape((batch, group, depth * taps, math.prod(sizes))), rows, part="columns")
    matrix = node.emit(Reshape((1, group, filters // group, depth * taps)), w, part="matrix")
    product = node.emit(MatMul(), matrix, columns, part="matrices")
    return node.emit(Reshape((batch, filters, *sizes)), product, part=part)
