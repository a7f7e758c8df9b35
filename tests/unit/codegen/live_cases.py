"""Instructions with results of which a part is live, one function for each kind."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from qglow.core.types import Array, ElementType, Quantization, Shape, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.elementwise import Affine, ElementAdd, ElementMul
from qglow.instructions.ops.linear import FullyConnected, MatMul
from qglow.instructions.ops.movement import Gather, Insert, Transpose
from qglow.instructions.ops.normalization import LocalResponse, Standardize
from qglow.instructions.ops.pool import AveragePool, MaxPool
from qglow.instructions.ops.reduce import Reduce
from qglow.instructions.ops.rows import QuantizeRows, RowScales
from qglow.instructions.ops.softmax import Softmax
from qglow.instructions.program import Buffer

ROWS = 96
Pairs = tuple[tuple[int, int], ...]
Limited = tuple[Buffer, Pairs]
"""A result, and pairs (extent, inner) of its live places."""
Made = Callable[[ProgramBuilder], Limited]
"""Adds instructions to a program."""


def drawn(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def layer(builder: ProgramBuilder) -> Limited:
    src, dest = (builder.placeholder(n, float_type(ROWS, k)) for n, k in (("src", 40), ("dest", 24)))
    filters = builder.constant("filter", drawn(40, 24))
    builder.emit("layer", FullyConnected(), dest, src, filters, builder.constant("bias", drawn(24)))
    return dest, ((ROWS, 24),)


def int8_layer(builder: ProgramBuilder) -> Limited:
    quantization = Quantization.per_tensor(0.0625, 3)
    src = builder.placeholder("src", TensorType(ElementType.INT8, (ROWS, 64), quantization))
    dest = builder.placeholder("dest", TensorType(ElementType.INT8, (ROWS, 32), quantization))
    weights = np.random.default_rng(0).integers(-127, 128, (64, 32)).astype(np.int8)
    filters = builder.constant("filter", weights, Quantization((0.0078125,) * 32, (0,) * 32, 1))
    bias = builder.constant("bias", np.arange(32, dtype=np.int32))
    multiplier = builder.constant("multiplier", np.full(32, 0.0078125, np.float32))
    builder.emit("layer", FullyConnected(), dest, src, filters, bias, multiplier)
    return dest, ((ROWS, 32),)


def blocks(builder: ProgramBuilder) -> Limited:
    src, dest = (builder.placeholder(n, float_type(ROWS, k)) for n, k in (("src", 64), ("dest", 24)))
    codes = np.random.default_rng(0).integers(0, 256, (32, 24)).astype(np.uint8)
    arrays = builder.constant("filter", codes), builder.constant("scales", abs(drawn(2, 24)))
    builder.emit("blocks", BlockGemm(bits=4, block=32), dest, src, *arrays)
    return dest, ((ROWS, 24),)


def sums(builder: ProgramBuilder) -> Limited:
    src, other = (builder.placeholder(n, float_type(3, ROWS, 40)) for n in ("src", "other"))
    dest = builder.placeholder("dest", float_type(3, ROWS, 40))
    held = builder.activation("held", float_type(3, ROWS, 40))
    builder.emit("add", ElementAdd(), held, src, other)
    builder.emit("mul", ElementMul(), dest, held, builder.constant("factors", drawn(1, 1, 40)))
    return dest, ((ROWS, 40),)


def flat_sum(builder: ProgramBuilder) -> Limited:
    src, other, dest = (builder.placeholder(n, float_type(2, ROWS, 40)) for n in ("src", "other", "dest"))
    builder.emit("add", ElementAdd(), dest, src, other)
    return dest, ((ROWS, 40),)


def affine(builder: ProgramBuilder) -> Limited:
    src, dest = (builder.placeholder(n, float_type(2, ROWS, 40)) for n in ("src", "dest"))
    factors = builder.constant("scale", drawn(40)), builder.constant("shift", drawn(40))
    builder.emit("affine", Affine(), dest, src, *factors)
    return dest, ((ROWS, 40),)


def softmax(builder: ProgramBuilder) -> Limited:
    src, dest = (builder.placeholder(n, float_type(3, ROWS, 40)) for n in ("src", "dest"))
    builder.emit("softmax", Softmax(2), dest, src)
    return dest, ((ROWS, 40),)


def means(builder: ProgramBuilder) -> Limited:
    src, dest = (builder.placeholder(n, float_type(ROWS, k, 1)) for n, k in (("src", 40), ("dest", 1)))
    builder.emit("mean", Reduce("mean"), dest, src)
    return dest, ((ROWS, 1),)


def scales(builder: ProgramBuilder) -> Limited:
    src, dest = (
        builder.placeholder("src", float_type(ROWS, 40)),
        builder.placeholder("dest", float_type(ROWS)),
    )
    builder.emit("scales", RowScales(), dest, src)
    return dest, ((ROWS, 1),)


def integers(builder: ProgramBuilder) -> Limited:
    src, scales = (builder.placeholder(n, float_type(ROWS, k)) for n, k in (("src", 40), ("scales", 1)))
    dest = builder.placeholder("dest", TensorType(ElementType.INT8, (ROWS, 40), Quantization((1.0,), (0,))))
    builder.emit("integers", QuantizeRows(), dest, scales, src)
    return dest, ((ROWS, 40),)


def rows(builder: ProgramBuilder) -> Limited:
    src, dest = (builder.placeholder(n, float_type(ROWS, 40)) for n in ("src", "dest"))
    builder.emit("rows", Standardize(1e-5), dest, src, builder.constant("scale", drawn(40)))
    return dest, ((ROWS, 40),)


def heads(builder: ProgramBuilder) -> Limited:
    src, dest = (
        builder.placeholder("src", float_type(ROWS, 4, 16)),
        builder.placeholder("dest", float_type(4, ROWS, 16)),
    )
    builder.emit("heads", Transpose((1, 0, 2)), dest, src)
    return dest, ((ROWS, 16),)


def keys(builder: ProgramBuilder) -> Limited:
    src, dest = (
        builder.placeholder("src", float_type(ROWS, 40)),
        builder.placeholder("dest", float_type(40, ROWS)),
    )
    builder.emit("keys", Transpose((1, 0)), dest, src)
    return dest, ((ROWS, 1),)


def scores(builder: ProgramBuilder) -> Limited:
    """Rows and columns that have run-time numbers."""
    lhs, rhs = (
        builder.placeholder("lhs", float_type(3, ROWS, 16)),
        builder.placeholder("rhs", float_type(3, 16, ROWS)),
    )
    dest = builder.placeholder("dest", float_type(3, ROWS, ROWS))
    builder.emit("scores", MatMul(), dest, lhs, rhs)
    return dest, ((ROWS, ROWS), (ROWS, 1))


def int8_scores(builder: ProgramBuilder) -> Limited:
    """The same of integers, whose right operand is packed in blocks of columns."""
    dest = builder.placeholder("dest", float_type(3, ROWS, ROWS))
    builder.emit("scores", MatMul(), dest, *int8_pair(builder, (3, ROWS, 16), (3, 16, ROWS)))
    return dest, ((ROWS, ROWS), (ROWS, 1))


def int8_pair(builder: ProgramBuilder, lhs: Shape, rhs: Shape) -> tuple[Buffer, Buffer]:
    """Operands with zero points, -128 as shares have it, and 5."""
    kinds = Quantization.per_tensor(1 / 256, -128), Quantization.per_tensor(0.03125, 5)
    left, right = (
        builder.placeholder(name, TensorType(ElementType.INT8, shape, kind))
        for name, shape, kind in zip(("lhs", "rhs"), (lhs, rhs), kinds, strict=True)
    )
    return left, right


def images(batch: int = ROWS) -> tuple[int, ...]:
    return batch, 5, 6, 8


def image_pair(builder: ProgramBuilder, shape: tuple[int, ...]) -> tuple[Buffer, Buffer, Pairs]:
    """Source, result of this shape of an image, and the rule of its images."""
    src = builder.placeholder("src", float_type(*images()))
    dest = builder.placeholder("dest", float_type(ROWS, *shape))
    return src, dest, ((ROWS, math.prod(shape)),)


def convolution(builder: ProgramBuilder) -> Limited:
    src, dest, pairs = image_pair(builder, (5, 6, 24))
    filters = builder.constant("filter", drawn(24, 3, 3, 8))
    window = Convolution(pads=(1, 1, 1, 1))
    builder.emit("conv", window, dest, src, filters, builder.constant("bias", drawn(24)))
    return dest, pairs


def point(builder: ProgramBuilder) -> Limited:
    """Images and pixels are one axis of the product."""
    src, dest, pairs = image_pair(builder, (5, 6, 24))
    filters = builder.constant("filter", drawn(24, 1, 1, 8))
    builder.emit("conv", Convolution(), dest, src, filters, builder.constant("bias", drawn(24)))
    return dest, pairs


def depthwise(builder: ProgramBuilder) -> Limited:
    src, dest, pairs = image_pair(builder, (5, 6, 8))
    filters = builder.constant("filter", drawn(8, 3, 3, 1))
    window = Convolution(pads=(1, 1, 1, 1), group=8)
    builder.emit("conv", window, dest, src, filters, builder.constant("bias", drawn(8)))
    return dest, pairs


def pool(builder: ProgramBuilder) -> Limited:
    src, dest, pairs = image_pair(builder, (4, 5, 8))
    builder.emit("pool", MaxPool((2, 2)), dest, src)
    return dest, pairs


def average(builder: ProgramBuilder) -> Limited:
    src, dest, pairs = image_pair(builder, (4, 5, 8))
    builder.emit("pool", AveragePool((2, 2)), dest, src)
    return dest, pairs


def response(builder: ProgramBuilder) -> Limited:
    src, dest, pairs = image_pair(builder, (5, 6, 8))
    builder.emit("response", LocalResponse(3, 0.5, 0.75, 1.0), dest, src)
    return dest, pairs


def doubled(builder: ProgramBuilder) -> Limited:
    src, dest, pairs = image_pair(builder, (5, 12, 8))
    places = builder.constant("places", np.repeat(np.arange(6, dtype=np.int32), 2))
    builder.emit("gather", Gather(2), dest, src, places)
    return dest, pairs


def part(builder: ProgramBuilder) -> Limited:
    src, dest, pairs = image_pair(builder, (5, 6, 12))
    builder.emit("insert", Insert((0, 0, 0, 2)), dest, src)
    return dest, pairs


def channels_last(builder: ProgramBuilder) -> Limited:
    src = builder.placeholder("src", float_type(ROWS, 3, 40))
    dest = builder.placeholder("dest", float_type(ROWS, 40, 3))
    builder.emit("moved", Transpose((0, 2, 1)), dest, src)
    return dest, ((ROWS, 120),)


def pixel_means(builder: ProgramBuilder) -> Limited:
    src = builder.placeholder("src", float_type(ROWS, 30, 24))
    dest = builder.placeholder("dest", float_type(ROWS, 1, 24))
    builder.emit("mean", Reduce("mean"), dest, src)
    return dest, ((ROWS, 24),)


def products(builder: ProgramBuilder) -> Limited:
    """Products of which only the first are live."""
    lhs, rhs = (builder.placeholder(n, float_type(ROWS, *s)) for n, s in (("lhs", (4, 8)), ("rhs", (8, 24))))
    dest = builder.placeholder("dest", float_type(ROWS, 4, 24))
    builder.emit("products", MatMul(), dest, lhs, rhs)
    return dest, ((ROWS, 96),)


IMAGES = (
    convolution,
    point,
    depthwise,
    pool,
    average,
    response,
    doubled,
    part,
    channels_last,
    pixel_means,
    products,
)
CASES = (
    *(layer, int8_layer, blocks, sums, flat_sum, affine, softmax, means, scales, heads, keys, scores),
    *(int8_scores, integers, rows),
    *IMAGES,
)
