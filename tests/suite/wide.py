"""int16 activations: between themselves, beside int8, and at the borders to both int8 and float."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import ElementType, Quantization, Shape, TensorType, float_type
from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul, PRelu, Sub
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Pad, Slice
from qglow.graph.ops.normalization import Affine
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from qglow.graph.ops.quantize import Quantize, Rescale
from qglow.graph.ops.ranking import TopK
from qglow.graph.ops.reduce import ReduceMax, ReduceMean, ReduceMin
from qglow.graph.ops.resize import Resize, ResizeNearest
from qglow.graph.ops.selection import Max, Where
from qglow.graph.ops.shape import Concat, Reshape, Transpose
from tests.suite.conv import CASES, Case
from tests.suite.problem import Drawing, Maker, Problem

IMAGE = (2, 19, 5, 3)
MOVEMENTS: tuple[Operator, ...] = (
    MaxPool(kernel=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2)),
    ReduceMax(axes=(2, 3)),
    ReduceMin(axes=(1,)),
    TopK(axis=1, k=4),
    TopK(axis=1, k=4, largest=False),
    Transpose(perm=(0, 2, 3, 1)),
    Reshape(shape=(2, 19 * 5, 3)),
    Slice((0, 3, 1, 0), (2, 18, 5, 3), (1, 3, 2, 1)),
    Pad(pads=(0, 1, 2, 0, 0, 3, 0, 1)),
    ResizeNearest(sizes=(2, 19, 10, 6), scales=(1.0, 1.0, 2.0, 2.0)),
)
FORMS = [(True, True), (True, False), (False, True)]
"""Whether input and result are int16, of operators that take and give either."""


class WideDrawing(Drawing):
    """Draws int16 values next to int8 ones."""

    def of(self, wide: bool, *shape: int) -> Value:
        """A float input as int16, or as int8."""
        return self.quantize(self.real(*shape), wide)

    def quantize(self, value: Value, wide: bool) -> Value:
        """A float value as int16 or int8 with random parameters."""

        return self.builder.node(Quantize(), value, output_types=[self.like(wide, value.type.shape)])

    def like(self, wide: bool, shape: Shape) -> TensorType:
        """A type of this shape with random parameters."""
        if not wide:
            return self.int8_like(shape)
        scale = float(np.float32(2.0 ** self.random.uniform(-15, -11)))
        return float_type(*shape).quantized(Quantization.per_tensor(scale, 0, ElementType.INT16))

    def results(self, operator: Operator, forms: Sequence[bool], *operands: Value) -> list[Value]:
        """The operator once for every form of result."""
        (kind,) = operator.infer([value.type for value in operands])
        kinds = [self.like(wide, kind.shape) for wide in forms]
        return [self.builder.node(operator, *operands, output_types=[kind]) for kind in kinds]


def conv(name: str, case: Case) -> Maker:
    """int16 to int16 and int8 to int16."""

    def make(random: np.random.Generator) -> Problem:
        drawing = WideDrawing(f"conv_int16_{name}", random)
        shape = (case.filters, case.image[1] // case.operator.group, *case.kernel)
        found = []
        for wide in (True, False):
            x = drawing.of(wide, *case.image)
            w, bias = drawing.int8_weights(x, 0, *shape)
            found += drawing.results(case.operator, (True,), x, w, bias)
        return drawing.finish(*found)

    return make


def gemm(m: int, k: int, n: int) -> Maker:
    """int16 to int16, int8 and float; int8 to int16."""

    def make(random: np.random.Generator) -> Problem:
        drawing = WideDrawing(f"gemm_int16_{m}x{k}x{n}", random)
        wide, narrow = drawing.of(True, m, k), drawing.of(False, m, k)
        w, bias = drawing.int8_weights(wide, 1, k, n)
        found = drawing.results(Gemm(lo=0.0), (True, False), wide, w, bias)
        found.append(drawing.builder.node(Gemm(), wide, w, bias, output_types=[float_type(m, n)]))
        w, bias = drawing.int8_weights(narrow, 1, k, n)
        return drawing.finish(*found, *drawing.results(Gemm(), (True,), narrow, w, bias))

    return make


def largest_sums(random: np.random.Generator) -> Problem:
    """Sums of both bytes near the ends of int32, and all together far beyond it."""
    drawing = WideDrawing("gemm_int16_largest", random)
    depth = 66000
    x = drawing.of(True, 2, depth)
    drawing.inputs["x0"] = np.full((2, depth), -np.inf, np.float32)
    drawing.inputs["x0"][1] = np.inf
    data = np.full((depth, 3), 127, np.int8)
    data[:, 1] = -127
    data[::2, 2] = 126
    w = drawing.builder.constant("w", data, Quantization.per_channel(np.full(3, 0.01, np.float32), 1))
    bias = drawing.builder.constant("bias", np.array([1, -1, 3], np.int32))
    return drawing.finish(
        drawing.builder.node(Gemm(), x, w, bias, output_types=[float_type(2, 3)]),
        *drawing.results(Gemm(), (True,), x, w, bias),
    )


def binary(operator: Operator, shape: Shape) -> Maker:
    """Mixtures of int16 and int8 operands and results, with int16 among them."""

    def make(random: np.random.Generator) -> Problem:
        drawing = WideDrawing(f"{operator.name}_int16", random)
        wide, narrow, other = (drawing.of(kind, *shape) for kind in (True, False, True))
        found = [
            *drawing.results(operator, (True, False), wide, other),
            *drawing.results(operator, (False,), wide, narrow),
            *drawing.results(operator, (True,), narrow, wide),
            *drawing.results(operator, (True,), narrow, narrow),
        ]
        return drawing.finish(*found)

    return make


def unary(operator: Operator, shape: Shape = IMAGE) -> Maker:
    """int16 to int16 and int8, int8 to int16."""

    def make(random: np.random.Generator) -> Problem:
        drawing = WideDrawing(f"{operator.name}_int16", random)
        found = []
        for wide, result in FORMS:
            found += drawing.results(operator, (result,), drawing.of(wide, *shape))
        return drawing.finish(*found)

    return make


def with_factors(operator: Operator, shape: Shape, *factors: Shape) -> Maker:
    """int16 to int16 and int8, int8 to int16, with float vectors."""

    def make(random: np.random.Generator) -> Problem:
        drawing = WideDrawing(f"{operator.name}_int16", random)
        vectors = [drawing.builder.constant(f"f{i}", drawing.weights(*f)) for i, f in enumerate(factors)]
        found = []
        for wide, result in FORMS:
            found += drawing.results(operator, (result,), drawing.of(wide, *shape), *vectors)
        return drawing.finish(*found)

    return make


def movements(random: np.random.Generator) -> Problem:
    """int16 elements that keep their parameters."""
    drawing = WideDrawing("movement_int16", random)
    x = drawing.of(True, *IMAGE)
    parameters = x.type.quantization
    assert parameters is not None
    found = []
    for operator in MOVEMENTS:
        (kind,) = operator.infer([x.type])
        found.append(drawing.builder.node(operator, x, output_types=[kind.quantized(parameters)]))
    return drawing.finish(*found)


def concat(random: np.random.Generator) -> Problem:
    """Two operands of one scale, along the channels."""
    drawing = WideDrawing("concat_int16", random)
    kind = drawing.like(True, (2, 3, 7, 5))
    parameters = kind.quantization
    assert parameters is not None
    values = [drawing.real(2, 3, 7, 5), drawing.real(2, 16, 7, 5)]

    parts = [drawing.builder.node(Quantize(), v, output_types=[v.type.quantized(parameters)]) for v in values]
    result = float_type(2, 19, 7, 5).quantized(parameters)
    return drawing.finish(drawing.builder.node(Concat(axis=1), *parts, output_types=[result]))


def where(random: np.random.Generator) -> Problem:
    """A choice of int16 and int8 values."""
    drawing = WideDrawing("where_int16", random)
    condition = drawing.builder.constant("c", random.integers(0, 2, (3, 17)).astype(np.bool_))
    wide, narrow = drawing.of(True, 3, 17), drawing.of(False, 3, 17)
    return drawing.finish(*drawing.results(Where(), (True, False), condition, wide, narrow))


def behind_one_another(random: np.random.Generator) -> Problem:
    """A network in small: conv, relu, add, pool, gemm in int16, and a branch in int8."""
    drawing = WideDrawing("network_int16", random)
    x = drawing.of(True, 1, 3, 9, 9)
    w, bias = drawing.int8_weights(x, 0, 8, 3, 3, 3)
    operator = Conv(pads=(1, 1, 1, 1), lo=0.0)
    (first,) = drawing.results(operator, (True,), x, w, bias)
    v, shift = drawing.int8_weights(first, 0, 8, 8, 3, 3)
    second, narrow = drawing.results(Conv(pads=(1, 1, 1, 1)), (True, False), first, v, shift)
    (total,) = drawing.results(Add(lo=0.0), (True,), second, first)
    (rescaled,) = drawing.results(Rescale(), (True,), narrow)
    (joined,) = drawing.results(Add(), (False,), total, rescaled)
    return drawing.finish(joined, *drawing.results(GlobalAveragePool(), (True,), total))


ODD = (3, 17)
TAKEN = ("first_layer", "asymmetric_pads", "grouped", "depthwise_strided", "depth_multiplier", "single_pixel")
PROBLEMS: list[Maker] = [
    *(conv(name, CASES[name]) for name in TAKEN),
    *(gemm(*shape) for shape in ((1, 1, 1), (4, 64, 130))),
    largest_sums,
    *(binary(f, IMAGE) for f in (Add(), Mul(lo=-1.0, hi=1.0))),
    *(binary(f, ODD) for f in (Sub(lo=0.0), Div(), Max())),
    *(unary(f) for f in (Clip(lo=0.0, hi=6.0), Rescale())),
    *(unary(f) for f in (AveragePool(kernel=(3, 2), pads=(1, 0, 1, 1)), ReduceMean(axes=(1,)))),
    unary(Resize(sizes=(1, 6, 9, 7), scales=(1.0, 1.0, 1.5, 1.4), mode="linear"), (1, 6, 6, 5)),
    with_factors(Affine(lo=0.0), IMAGE, (19,), (19,)),
    with_factors(PRelu(), IMAGE, (19, 1, 1)),
    movements,
    concat,
    where,
    behind_one_another,
]
