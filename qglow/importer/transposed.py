"""Import of transposed convolutions. https://onnx.ai/onnx/operators/onnx__ConvTranspose.html

A ConvTranspose is the convolution, with turned weights, of the input with zeros between its
elements. Written so it is quantized, folded and compiled like every convolution: int8 zeros are zero
points, which add nothing to a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qglow.graph.graph import Value
from qglow.graph.ops.movement import Gather, Pad, Slice
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.graph.traits import SlidingWindow
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.volumes import RANK, emit_convolution_over_volume
from qglow.importer.windows import (
    as_pads,
    as_pair,
    emit_convolution,
    image,
    read_auto_pad,
    read_pads,
    read_steps,
    spatial_sizes,
)


@dataclass(frozen=True)
class Ends:
    """Extents of one axis: how far the padding of the convolution reaches at both ends.

    Negative amounts cut the input instead.
    """

    before: int
    after: int


def import_conv_transpose(node: ImportNode) -> None:
    """Import ConvTranspose over one to three spatial dimensions."""
    shape, group = node.kind(1).shape, node.integer("group", 1)
    node.require(len(shape) in (3, 4, 5), f"weights of {len(shape)} axes; 3 to 5 are supported")
    kernel = shape[2:]
    stated = node.integers("kernel_shape", kernel)
    node.require(stated == kernel, f"kernel_shape {list(stated)} differs from the weight's {list(kernel)}")
    node.require(group >= 1 and shape[0] % group == 0, f"{shape[0]} channels do not divide by group {group}")
    strides, dilations = read_steps(node, kernel)
    ends = _geometry(node, kernel, strides, dilations)
    pads = (*(max(0, e.before) for e in ends), *(max(0, e.after) for e in ends))
    if len(shape) == RANK:
        x = _cut(node, _spread(node, node.value(0), strides), ends)
        w = _turned(node, node.value(1), group)
        axes = ((1, 1, 1), dilations, pads)
        emit_convolution_over_volume(node, x, w, axes, group)
        return
    flat = [Ends(0, 0)] * (4 - len(shape))
    x = _cut(node, _spread(node, image(node), as_pair(strides)), [*flat, *ends])
    window = SlidingWindow(as_pair(kernel), (1, 1), as_pads(pads), as_pair(dilations))
    emit_convolution(node, window, group, x, _turned(node, image(node, 1), group))


def _geometry(
    node: ImportNode, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> list[Ends]:
    sizes = spatial_sizes(node)
    rank = len(sizes)
    extra = node.integers("output_padding", (0,) * rank)
    node.require(len(extra) == rank and min(extra) >= 0, f"output_padding {list(extra)} does not fit")
    begins, ends = _pads(node, sizes, kernel, strides, dilations, extra)
    reaches = [dilation * (k - 1) for k, dilation in zip(kernel, dilations, strict=True)]
    return [
        # Zeros follow the last element, too, as many as lie between two.
        Ends(reaches[i] - begins[i], reaches[i] - ends[i] + extra[i] - (strides[i] - 1))
        for i in range(rank)
    ]


def _pads(
    node: ImportNode,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    extra: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pads: elements cut from the full result before and after every axis; negative ones are added."""
    rank, mode = len(sizes), read_auto_pad(node)
    explicit, wanted = read_pads(node, rank), node.integers("output_shape", ())
    if not wanted and mode == "NOTSET":
        return explicit[:rank], explicit[rank:]
    if not wanted and mode == "VALID":
        return (0,) * rank, (0,) * rank
    stated = bool(wanted)
    if not wanted:
        wanted = tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
    node.require(len(wanted) in (rank, rank + 2), f"output_shape {list(wanted)} is not {rank}-dimensional")
    begins, ends = [], []
    for i, want in enumerate(wanted[-rank:]):
        total = strides[i] * (sizes[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - want
        if total < 0 and not stated:
            # Pads are never negative: the result is smaller than a multiple of the input, as elsewhere.
            total = 0
        if total < 0:
            begins.append(0)
            ends.append(total)
            continue
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return tuple(begins), tuple(ends)


def _spread(node: ImportNode, x: Value, strides: Sequence[int]) -> Value:
    """Zeros behind every element, so that elements lie `strides` apart."""
    if all(stride == 1 for stride in strides):
        return x
    leading, sizes = x.type.shape[:2], x.type.shape[2:]
    single = tuple(number for size in sizes for number in (size, 1))
    apart = node.emit(Reshape(shape=(*leading, *single)), x, part="apart")
    behind = tuple(number for stride in strides for number in (0, stride - 1))
    zeros = node.emit(Pad(pads=(*(0,) * (4 + len(single)), *behind)), apart, part="zeros")
    spread = tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
    return node.emit(Reshape(shape=(*leading, *spread)), zeros, part="spread")


def _cut(node: ImportNode, x: Value, ends: Sequence[Ends]) -> Value:
    """Cut off what negative padding takes away at the ends of each spatial axis."""
    cuts = [(max(0, -each.before), max(0, -each.after)) for each in ends]
    if not any(map(any, cuts)):
        return x
    shape = x.type.shape
    begins = [before for before, _ in cuts]
    stops = [size - after for size, (_, after) in zip(shape[2:], cuts, strict=True)]
    node.require(all(map(int.__lt__, begins, stops)), "its pads leave nothing of the input")
    operator = Slice(starts=(0, 0, *begins), ends=(*shape[:2], *stops), steps=(1,) * len(shape))
    return node.emit(operator, x, part="cut")


def _turned(node: ImportNode, w: Value, group: int) -> Value:
    """Weights [C, M/group, ...] as those of a convolution [M, C/group, ...], back to front."""
    channels, filters, *kernel = w.type.shape
    axes = range(2, 2 + len(kernel))
    if group > 1:
        grouped = (group, channels // group, filters, *kernel)
        w = node.emit(Reshape(shape=grouped), w, part="groups")
        w = node.emit(Transpose(perm=(0, 2, 1, *(axis + 1 for axis in axes))), w, part="exchanged")
        w = node.emit(Reshape(shape=(group * filters, channels // group, *kernel)), w, part="filters")
    else:
        w = node.emit(Transpose(perm=(1, 0, *axes)), w, part="filters")
    for axis in axes:
        order = node.part_constant(f"order{axis}", np.arange(kernel[axis - 2])[::-1].astype(np.int64))
        w = node.emit(Gather(axis=axis), w, order, part=f"turned{axis}")
    return w


RULES: dict[str, ImportRule] = {"ConvTranspose": ImportRule(import_conv_transpose, newest=22)}
