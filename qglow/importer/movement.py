"""Import of data movement that other operators express: parts, repetition, borders, blocks.

https://onnx.ai/onnx/operators/ Slice, Split, Pad, Expand, Tile, Gather, DepthToSpace,
SpaceToDepth, ConstantOfShape
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from qglow.graph.graph import Value
from qglow.graph.ops.movement import PAD_MODES, Expand, Gather, Pad, Slice
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.importer.node import ImportNode, ImportRule

LARGEST_CONSTANT = 1 << 28
"""Elements above which ConstantOfShape is refused: a small file can ask for any amount."""


def import_slice(node: ImportNode) -> None:
    """Import Slice; bounds are attributes before opset 10 and constant inputs from then on.

    An axis that is walked backwards is cut forwards and then gathered in reverse.
    """
    shape = node.kind().shape
    if node.opset < 10:
        starts, ends = node.integers("starts", ()), node.integers("ends", ())
        axes, steps = node.integers("axes", range(len(starts))), (1,) * len(starts)
    else:
        starts, ends = _integers(node, 1, "the start"), _integers(node, 2, "the end")
        axes = _integers(node, 3, "the axes") if node.has_input(3) else tuple(range(len(starts)))
        steps = _integers(node, 4, "the steps") if node.has_input(4) else (1,) * len(starts)
    lengths = {len(starts), len(ends), len(axes), len(steps)}
    node.require(len(lengths) == 1, "starts, ends, axes and steps differ in length")
    node.require(0 not in steps, "a step is 0")
    low, high, stride, reversed_axes = [0] * len(shape), list(shape), [1] * len(shape), []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index = node.axis(axis, len(shape))
        places = range(shape[index])[start:end:step]
        if step < 0:
            places = places[::-1]
            reversed_axes.append(index)
        low[index], stride[index] = (places[0], abs(step)) if places else (0, 1)
        high[index] = places[-1] + 1 if places else 0
    operator = Slice(starts=tuple(low), ends=tuple(high), steps=tuple(stride))
    if not reversed_axes:
        node.emit(operator, node.value(0))
        return
    value = node.emit(operator, node.value(0), part="forwards")
    for count, axis in enumerate(reversed_axes, start=1):
        order = node.part_constant(f"order{axis}", np.arange(value.type.shape[axis])[::-1].astype(np.int64))
        part = "" if count == len(reversed_axes) else f"reversed{axis}"
        value = node.emit(Gather(axis=axis), value, order, part=part)


def import_split(node: ImportNode) -> None:
    """Import Split: one Slice an output. Sizes are stated, else equal but for a smaller last one."""
    shape = node.kind().shape
    axis = node.axis(node.integer("axis", 0), len(shape))
    count = len(node.proto.output)
    node.require(node.integer("num_outputs", count) == count, f"num_outputs is not {count}")
    sizes = node.integers("split", ()) if node.opset < 13 else ()
    if node.opset >= 13 and node.has_input(1):
        sizes = _integers(node, 1, "the sizes of the parts")
    if not sizes:
        each = -(-shape[axis] // count)
        sizes = tuple(max(0, min(each, shape[axis] - index * each)) for index in range(count))
    fits = len(sizes) == count and sum(sizes) == shape[axis] and min(sizes) >= 0
    node.require(fits, f"parts of {list(sizes)} are not {count} parts of an axis of {shape[axis]}")
    start = 0
    for index, size in enumerate(sizes):
        low, high = [0] * len(shape), list(shape)
        low[axis], high[axis] = start, start + size
        operator = Slice(starts=tuple(low), ends=tuple(high), steps=(1,) * len(shape))
        if node.proto.output[index]:
            node.emit(operator, node.value(0), output=index)
        start += size


def import_pad(node: ImportNode) -> None:
    """Import Pad; amounts are attributes before opset 11, constant inputs from then on. Negative ones cut."""
    mode = node.string("mode", "constant")
    node.require(mode in PAD_MODES, f"mode {mode}; supported are {', '.join(PAD_MODES)}")
    shape = node.kind().shape
    rank = len(shape)
    if node.opset < 11:
        amounts, value = node.integers("pads", ()), node.number("value", 0.0)
    else:
        amounts, value = _integers(node, 1, "the amounts"), node.scalar(2, "the padding value", 0.0)
    stated = _integers(node, 3, "the axes") if node.has_input(3) else tuple(range(rank))
    axes = [node.axis(a, rank) for a in stated]
    node.require(len(amounts) == 2 * len(axes), f"{len(amounts)} amounts for {len(axes)} dimensions")
    pads = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        pads[axis], pads[rank + axis] = amounts[position], amounts[len(axes) + position]
    source = _cut(node, pads) if min(pads, default=0) < 0 else node.value(0)
    grown = tuple(max(0, pad) for pad in pads)
    quantization = source.type.quantization
    if quantization is None:
        node.emit(Pad(pads=grown, value=value if mode == "constant" else 0.0, mode=mode), source)
        return
    real = _real_padding(node, source, value) if mode == "constant" else 0.0
    result = node.proto.output[0]
    padded = Pad(pads=grown, value=real, mode=mode)
    node.results[result] = node.context.emit(node.name, padded, [source], result, quantization)


def _real_padding(node: ImportNode, source: Value, number: float) -> float:
    """The real that a number means which is put around integers with parameters."""
    quantization = source.type.quantization
    if quantization is None or quantization.axis is not None:
        node.refuse(f"'{source.name}' holds integers with a scale for each channel; pad their reals")
    given = node.inputs[2] if node.has_input(2) else None
    signed = given is not None and given.type.is_quantized
    unsigned = source.name in node.context.unsigned and not signed
    middle = 1 << (8 * source.type.element.size - 1) if unsigned else 0
    return float((number - middle - quantization.zero_point) * quantization.scale)


def _cut(node: ImportNode, pads: Sequence[int]) -> Value:
    """The input without what negative amounts take away."""
    shape = node.kind().shape
    rank = len(shape)
    low = tuple(max(0, -pads[i]) for i in range(rank))
    high = tuple(extent - max(0, -pads[rank + i]) for i, extent in enumerate(shape))
    fits = all(start <= end for start, end in zip(low, high, strict=True))
    node.require(fits, f"pads {list(pads)} take more than there is of {list(shape)}")
    return node.emit(Slice(starts=low, ends=high, steps=(1,) * rank), node.value(0), part="cut")


def import_expand(node: ImportNode) -> None:
    """Import Expand: x broadcast against the stated shape."""
    wanted = _integers(node, 1, "the shape")
    try:
        shape = np.broadcast_shapes(node.kind().shape, wanted)
    except ValueError:
        node.refuse(f"{list(node.kind().shape)} does not broadcast to {list(wanted)}")
    node.emit(Expand(shape=tuple(int(d) for d in shape)), node.value(0))


def import_tile(node: ImportNode) -> None:
    """Import Tile: every axis gets one of size 1 before it, which is expanded and merged."""
    shape = node.kind().shape
    repeats = _integers(node, 1, "the repeats")
    fits = len(repeats) == len(shape) and min(repeats, default=0) >= 0
    node.require(fits, f"repeats {list(repeats)} do not fit {len(shape)} dimensions")
    apart = [
        d for r, extent in zip(repeats, shape, strict=True) for d in ((1, extent) if r != 1 else (extent,))
    ]
    grown = [
        d for r, extent in zip(repeats, shape, strict=True) for d in ((r, extent) if r != 1 else (extent,))
    ]
    value = node.emit(Reshape(shape=tuple(apart)), node.value(0), part="apart")
    value = node.emit(Expand(shape=tuple(grown)), value, part="repeated")
    merged = tuple(r * extent for r, extent in zip(repeats, shape, strict=True))
    node.emit(Reshape(shape=merged), value)


def import_gather(node: ImportNode) -> None:
    """Import Gather along an axis."""
    axis = node.axis(node.integer("axis", 0), node.rank())
    node.emit(Gather(axis=axis), node.value(0), node.value(1))


def import_depth_to_space(node: ImportNode) -> None:
    """Import DepthToSpace: blocks of channels become blocks of pixels."""
    batch, channels, height, width = _image(node)
    block, mode = node.integer("blocksize", 1), node.string("mode", "DCR")
    node.require(mode in ("DCR", "CRD"), f"mode {mode}; supported are DCR and CRD")
    fits = block >= 1 and channels % (block * block) == 0
    node.require(fits, f"{channels} channels are not blocks of {block} x {block}")
    depth = channels // (block * block)
    apart = (batch, block, block, depth) if mode == "DCR" else (batch, depth, block, block)
    perm = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    value = node.emit(Reshape(shape=(*apart, height, width)), node.value(0), part="blocks")
    value = node.emit(Transpose(perm=perm), value, part="moved")
    node.emit(Reshape(shape=(batch, depth, height * block, width * block)), value)


def import_space_to_depth(node: ImportNode) -> None:
    """Import SpaceToDepth: blocks of pixels become channels."""
    batch, channels, height, width = _image(node)
    block, mode = node.integer("blocksize", 1), node.string("mode", "DCR")
    node.require(mode in ("DCR", "CRD"), f"mode {mode}; supported are DCR and CRD")
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    fits = block >= 1 and height % block == 0 and width % block == 0
    node.require(fits, f"{height} x {width} pixels are not blocks of {block} x {block}")
    rows, columns = height // block, width // block
    apart = (batch, channels, rows, block, columns, block)
    value = node.emit(Reshape(shape=apart), node.value(0), part="blocks")
    value = node.emit(Transpose(perm=perm), value, part="moved")
    node.emit(Reshape(shape=(batch, channels * block * block, rows, columns)), value)


def _image(node: ImportNode) -> tuple[int, int, int, int]:
    shape = node.kind().shape
    node.require(len(shape) == 4, f"input has {len(shape)} dimensions; four (NCHW) are needed")
    return shape[0], shape[1], shape[2], shape[3]


def import_constant_of_shape(node: ImportNode) -> None:
    """Import ConstantOfShape: one value everywhere, float 0 unless stated."""
    shape = _integers(node, 0, "the shape")
    value = node.tensor("value") if node.has("value") else np.zeros(1, np.float32)
    node.require(value.size == 1, f"a value of {value.size} elements")
    fits = min(shape, default=0) >= 0 and math.prod(shape) <= LARGEST_CONSTANT
    node.require(fits, f"a constant of shape {list(shape)} is not supported")
    node.constant(np.full(shape, value.reshape(()), value.dtype))


def _integers(node: ImportNode, index: int, what: str) -> tuple[int, ...]:
    return tuple(int(v) for v in node.array(index, what).reshape(-1))


RULES: dict[str, ImportRule] = {
    "ConstantOfShape": ImportRule(import_constant_of_shape, newest=25),
    "DepthToSpace": ImportRule(import_depth_to_space, newest=28),
    "Expand": ImportRule(import_expand, newest=13),
    "Gather": ImportRule(import_gather, newest=13),
    "Pad": ImportRule(import_pad, newest=25),
    "Slice": ImportRule(import_slice, newest=13),
    "SpaceToDepth": ImportRule(import_space_to_depth, newest=28),
    "Split": ImportRule(import_split, newest=18),
    "Tile": ImportRule(import_tile, newest=13),
}
