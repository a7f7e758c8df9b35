"""Data movement between image and plain orders, and chains in which buffers become views."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array, ElementType, Quantization, TensorType
from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.movement import Expand, Gather, GatherElements, Pad, Slice
from qglow.graph.ops.pool import MaxPool
from qglow.graph.ops.quantize import Quantize
from qglow.graph.ops.shape import ChannelShuffle, Concat, Identity, Reshape, Transpose
from tests.suite.problem import Drawing, Maker, Problem, moderate

SINGLE: list[tuple[Operator, tuple[int, ...]]] = [
    (Reshape(shape=(2, 60)), (2, 3, 4, 5)),
    (Reshape(shape=(1, 2, 6, 10)), (2, 60)),
    (Transpose(perm=(0, 2, 3, 1)), (2, 3, 4, 5)),
    (Transpose(perm=(0, 3, 1, 2)), (2, 3, 4, 5)),
    (Transpose(perm=(1, 0)), (33, 17)),
    (Slice(starts=(0, 0, 0, 0), ends=(2, 3, 7, 8), steps=(1, 1, 2, 2)), (2, 3, 7, 8)),
    (Slice(starts=(0, 2, 1, 0), ends=(1, 30, 5, 4), steps=(1, 1, 1, 1)), (1, 33, 6, 4)),
    (Pad(pads=(0, 4, 0, 0, 0, 3, 0, 0)), (2, 5, 4, 3)),
    (Pad(pads=(0, 0, 1, 2, 0, 0, 0, 1), value=1.5), (1, 5, 4, 3)),
    (Pad(pads=(0, 0, 2, 1, 0, 0, 0, 3), mode="edge"), (1, 5, 4, 3)),
    (Pad(pads=(0, 0, 2, 1, 0, 0, 3, 0), mode="reflect"), (2, 70, 5, 3)),
    (Pad(pads=(3, 1), mode="wrap"), (9,)),
    (Expand(shape=(2, 5, 4, 3)), (2, 5, 1, 1)),
    (Expand(shape=(2, 5, 4, 3)), (4, 1)),
    (Expand(shape=(3, 2, 70)), (2, 1)),
    (Transpose(perm=(0, 3, 4, 1, 5, 2)), (1, 2, 2, 3, 4, 5)),
    (Transpose(perm=(4, 0, 2, 1, 3)), (2, 3, 9, 4, 17)),
    (ChannelShuffle(groups=3), (2, 12, 3, 4)),
    (ChannelShuffle(groups=4), (1, 68, 5)),
    (ChannelShuffle(groups=17), (3, 34)),
    (Identity(), (2, 3)),
]
Choosing = Gather | GatherElements
CHOICES: list[tuple[Choosing, tuple[int, ...], Array]] = [
    (Gather(axis=1), (2, 7, 3, 4), np.array([3, -1, 0, 3])),
    (Gather(axis=-1), (2, 7, 3, 70), np.array([69, 3])),
    (Gather(axis=2), (2, 3, 5), np.array([[0, 4, -5], [1, 1, 2]])),
    (Gather(axis=0), (4, 3, 5), np.array(-2)),
    (Gather(axis=2), (4, 3, 5), np.array(1)),
    (Gather(axis=0), (4,), np.array(3)),
    (Gather(axis=1), (2, 7, 3, 4), np.array([-1])),
    (GatherElements(axis=2), (2, 3, 5), np.arange(-5, 3).repeat(3).reshape(2, 3, 4)),
    (GatherElements(axis=0), (4, 3, 5), np.array([[[-1, 0]], [[2, 3]]])),
]


def single(operator: Operator, shape: tuple[int, ...], quantized: bool) -> Maker:
    """One operator between two borders."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"{operator.name}_{'int8' if quantized else 'float'}", random)
        x = drawing.integers(*shape) if quantized else drawing.real(*shape)
        return drawing.finish(_same(drawing, operator, x))

    return make


def gather(
    operator: Gather | GatherElements, shape: tuple[int, ...], indices: Array, quantized: bool
) -> Maker:
    """Known indices."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"gather_{'int8' if quantized else 'float'}", random)
        x = drawing.integers(*shape) if quantized else drawing.real(*shape)
        chosen = drawing.builder.constant("indices", np.asarray(indices, np.int64))
        kind = x.type.with_shape(operator.infer([x.type, chosen.type])[0].shape)
        return drawing.finish(drawing.builder.node(operator, x, chosen, output_types=[kind]))

    return make


def computed_gather(random: np.random.Generator) -> Problem:
    """Indices that are an input of the graph."""
    drawing = Drawing("gather_computed", random)
    x = drawing.real(6, 5)
    drawing.inputs["i"] = np.array([4, 0, -1, 3], np.int64)
    indices = drawing.builder.input("i", TensorType(ElementType.INT64, (4,)))
    return drawing.finish(*(drawing.builder.node(Gather(axis=axis), x, indices) for axis in (0, 1)))


def computed_elements(element: ElementType, quantized: bool) -> Maker:
    """Elements at indices that are an input of the graph, along each axis."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"gather_elements_{element.value}_{'int8' if quantized else 'float'}", random)
        x = drawing.integers(4, 3, 4) if quantized else drawing.real(4, 3, 4)
        drawing.inputs["i"] = random.integers(-3, 3, (3, 3, 4)).astype(element.dtype)
        indices = drawing.builder.input("i", TensorType(element, (3, 3, 4)))
        kind = x.type.with_shape((3, 3, 4))
        picked = (
            drawing.builder.node(GatherElements(axis), x, indices, output_types=[kind]) for axis in range(3)
        )
        return drawing.finish(*picked)

    return make


def concat(axis: int, quantized: bool) -> Maker:
    """Three operands, each computed, so that they may be written in place."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"concat_{axis}_{'int8' if quantized else 'float'}", random)
        parameters = drawing.parameters()
        values = []
        for extent in (3, 16, 5):
            shape = tuple(extent if a == axis else n for a, n in enumerate((2, 6, 4, 5)))
            x = drawing.real(*shape)
            drawing.inputs[x.name] = moderate(random, shape)
            kind = x.type.quantized(parameters) if quantized else x.type
            values.append(_quantized(drawing, x, kind) if quantized else drawing.builder.node(Add(), x, x))
        joined = TensorType(values[0].type.element, (1,), values[0].type.quantization)
        shape = Concat(axis=axis).infer([v.type for v in values])[0].shape
        y = drawing.builder.node(Concat(axis=axis), *values, output_types=[joined.with_shape(shape)])
        return drawing.finish(y)

    return make


def fire(random: np.random.Generator) -> Problem:
    """Squeeze, two expands into one concat, a pool: convolutions write into slices and padded buffers."""
    drawing = Drawing("fire", random)
    x = drawing.integers(1, 16, 9, 9)
    squeezed = _conv(drawing, x, 8, 1, drawing.parameters(-128))
    parameters = drawing.parameters(-128)
    left = _conv(drawing, squeezed, 24, 1, parameters)
    right = _conv(drawing, squeezed, 40, 3, parameters)
    joined = left.type.with_shape((1, 64, 9, 9))
    both = drawing.builder.node(Concat(axis=1), left, right, output_types=[joined])
    return drawing.finish(_same(drawing, MaxPool(kernel=(3, 3), strides=(2, 2)), both))


def shuffle(groups: int) -> Maker:
    """Channels of an image dealt out to groups between two convolutions, and the whole put together again."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"shuffle_{groups}", random)
        x = _conv(drawing, drawing.integers(2, 5, 6, 5), 24, 1, drawing.parameters())
        apart = _same(drawing, Reshape(shape=(2, groups, 24 // groups, 6, 5)), x)
        moved = _same(drawing, Transpose(perm=(0, 2, 1, 3, 4)), apart)
        shuffled = _same(drawing, Reshape(shape=(2, 24, 6, 5)), moved)
        part = drawing.builder.constant("one", np.array(1, np.int64))
        kind = x.type.with_shape((2, 24 // groups, 6, 5))
        half = drawing.builder.node(Gather(axis=1), apart, part, output_types=[kind])
        other = drawing.builder.node(Gather(axis=2), moved, part, output_types=[kind])
        results = [_conv(drawing, v, 8, 3, drawing.parameters()) for v in (shuffled, half, other)]
        return drawing.finish(*results)

    return make


def heads(quantized: bool) -> Maker:
    """Narrow convolutions of one value, side by side, which are computed as one."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("heads", random)
        x = drawing.integers(1, 20, 5, 6) if quantized else drawing.real(1, 20, 5, 6)
        if not quantized:
            drawing.inputs[x.name] = moderate(random, x.type.shape)
        parameters = drawing.parameters()
        results = []
        for channels in (1, 4, 1, 13):
            if quantized:
                results.append(_conv(drawing, x, channels, 3, parameters))
                continue
            w = drawing.builder.constant(f"w{len(results)}", drawing.weights(channels, 20, 3, 3))
            b = drawing.builder.constant(f"b{len(results)}", drawing.weights(channels))
            results.append(drawing.builder.node(Conv(pads=(1, 0, 1, 2)), x, w, b))
        pooled = (_same(drawing, MaxPool(kernel=(2, 2)), value) for value in results)
        return drawing.finish(*pooled, exact=quantized)

    return make


def shuffled(groups: int) -> Maker:
    """A shuffle of convolved channels, which a depthwise convolution, a join and the caller read."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"shuffled_{groups}", random)
        x = _conv(drawing, drawing.integers(1, 5, 6, 7), 40, 1, drawing.parameters())
        moved = _same(drawing, ChannelShuffle(groups=groups), x)
        kind = x.type.with_shape((1, 80, 6, 7))
        joined = drawing.builder.node(Concat(axis=1), moved, x, output_types=[kind])
        seen = _same(drawing, ChannelShuffle(groups=groups), joined)
        return drawing.finish(_conv(drawing, moved, 8, 3, drawing.parameters()), seen, joined)

    return make


def blocks(perm: tuple[int, ...], apart: tuple[int, ...], merged: tuple[int, ...]) -> Maker:
    """Pixels to channels or back, after a convolution."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"blocks_{perm}", random)
        x = _conv(drawing, drawing.integers(1, 5, 4, 6), 12, 1, drawing.parameters())
        moved = _same(drawing, Transpose(perm=perm), _same(drawing, Reshape(shape=apart), x))
        result = _same(drawing, Reshape(shape=merged), moved)
        return drawing.finish(_conv(drawing, result, 8, 1, drawing.parameters()), result)

    return make


def residual(random: np.random.Generator) -> Problem:
    """Two convolutions and the shortcut around them."""
    drawing = Drawing("residual", random)
    x = drawing.integers(2, 16, 8, 8)
    inner = _conv(drawing, x, 16, 3, drawing.parameters())
    outer = _conv(drawing, inner, 16, 3, drawing.parameters())
    total = drawing.builder.node(Add(lo=0.0), x, outer, output_types=[drawing.int8_like(x.type.shape)])
    return drawing.finish(total, inner)


def _conv(drawing: Drawing, x: Value, filters: int, size: int, parameters: Quantization) -> Value:
    pad = size // 2
    operator = Conv(pads=(pad, pad, pad, pad), lo=0.0)
    w, bias = drawing.int8_weights(x, 0, filters, x.type.shape[1], size, size)
    kind = operator.infer([x.type, w.type, None])[0].quantized(parameters)
    return drawing.builder.node(operator, x, w, bias, output_types=[kind])


def _same(drawing: Drawing, operator: Operator, x: Value) -> Value:
    shape = operator.infer([x.type])[0].shape
    return drawing.builder.node(operator, x, output_types=[x.type.with_shape(shape)])


def _quantized(drawing: Drawing, x: Value, kind: TensorType) -> Value:
    return drawing.builder.node(Quantize(), x, output_types=[kind])


PROBLEMS: list[Maker] = [
    *(single(operator, shape, quantized) for operator, shape in SINGLE for quantized in (True, False)),
    *(concat(axis, quantized) for axis in (1, 2, 3) for quantized in (True, False)),
    *(gather(*choice, quantized) for choice in CHOICES for quantized in (True, False)),
    computed_gather,
    computed_elements(ElementType.INT64, True),
    computed_elements(ElementType.INT32, False),
    *(shuffle(groups) for groups in (2, 3, 12)),
    heads(True),
    heads(False),
    *(shuffled(groups) for groups in (4, 10)),
    blocks((0, 3, 4, 1, 5, 2), (1, 2, 2, 3, 4, 6), (1, 3, 8, 12)),
    blocks((0, 1, 4, 2, 5, 3), (1, 3, 2, 2, 4, 6), (1, 3, 8, 12)),
    blocks((0, 3, 5, 1, 2, 4), (1, 12, 2, 2, 3, 2), (1, 48, 2, 3)),
    fire,
    residual,
]
