"""Choices, comparisons, quotients, powers and slopes, with operands that spread over the result."""

from __future__ import annotations

import numpy as np

from qglow.core.types import ElementType, Quantization
from qglow.graph.graph import Value
from qglow.graph.operator import Operator, Unify
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Div, Mul, Pow, PRelu, Sub
from qglow.graph.ops.logic import And, Compare, Not, Or
from qglow.graph.ops.pool import GlobalAveragePool
from qglow.graph.ops.quantize import Quantize
from qglow.graph.ops.selection import Max, Min, Where
from qglow.graph.ops.shape import Cast
from qglow.numerics.logic import RELATIONS
from tests.suite.problem import Drawing, Maker, Problem, moderate

Shapes = tuple[tuple[int, ...], tuple[int, ...]]
SPREAD: list[Shapes] = [
    ((2, 5, 3, 4), (2, 5, 3, 4)),
    ((1, 20, 3, 4), (1, 20, 1, 1)),
    ((2, 1, 7, 18), (2, 5, 1, 1)),
    ((3, 40), (3, 1)),
    ((3, 17), ()),
    ((17,), (2, 1, 17)),
    ((4, 3), (2, 5, 4, 3)),
]
BINARY: list[Operator] = [Add(lo=0.0), Sub(), Mul(), Div(hi=8.0), Pow(lo=0.5), Max(), Min()]


def in_float(operators: list[Operator], shapes: Shapes) -> Maker:
    """Two float operands."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("binary_float", random)
        values = [drawing.real(*shape) for shape in shapes]
        return drawing.finish(*(drawing.builder.node(operator, *values) for operator in operators))

    return make


def in_int8(operators: list[Operator], shapes: Shapes) -> Maker:
    """Two int8 operands, and for Max and Min also two with the parameters of the result."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("binary_int8", random)
        kind = drawing.int8_like(tuple(np.broadcast_shapes(*shapes)))
        values = [drawing.integers(*s) for s in shapes]
        alike = [_quantized(drawing, drawing.real(*s), kind.quantization) for s in shapes]
        results = [drawing.builder.node(operator, *values, output_types=[kind]) for operator in operators]
        for operator in operators:
            if isinstance(operator.policy, Unify):
                results.append(drawing.builder.node(operator, *alike, output_types=[kind]))
        return drawing.finish(*results)

    return make


def _quantized(drawing: Drawing, value: Value, parameters: Quantization | None) -> Value:
    assert parameters is not None
    return drawing.builder.node(Quantize(), value, output_types=[value.type.quantized(parameters)])


def constants(quantized: bool) -> Maker:
    """Scalars, short and long vectors of constants."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("constant_operands", random)
        value = drawing.integers(1, 20, 3, 4) if quantized else drawing.real(1, 20, 3, 4)
        for index, shape in enumerate([(), (20, 1, 1), (4,), (3, 1)]):
            data, parameters = drawing.weights(*shape), drawing.parameters()
            if quantized:
                integers = np.asarray(np.clip(data * 50, -128, 127)).astype(np.int8)
                other = drawing.builder.constant(f"c{index}", integers, parameters)
            else:
                other = drawing.builder.constant(f"c{index}", np.asarray(data))
            kinds = [drawing.int8_like(value.type.shape)] if quantized else None
            value = drawing.builder.node(Mul() if index % 2 else Sub(), value, other, output_types=kinds)
        return drawing.finish(value)

    return make


def gate(random: np.random.Generator) -> Problem:
    """Channels weighted by a function of their mean: an image times one value a channel."""
    drawing = Drawing("gate", random)
    image = drawing.real(2, 3, 5, 6)
    drawing.inputs[image.name] = moderate(random, image.type.shape)
    x = drawing.builder.node(Conv(), image, _filter(drawing, 20, 3, "a"))
    mean = drawing.builder.node(GlobalAveragePool(), x)
    scale = drawing.builder.node(Conv(), mean, _filter(drawing, 20, 20, "b"))
    return drawing.finish(drawing.builder.node(Mul(), x, scale), exact=False)


def _filter(drawing: Drawing, count: int, channels: int, name: str) -> Value:
    return drawing.builder.constant(name, drawing.weights(count, channels, 1, 1))


def prelu(random: np.random.Generator) -> Problem:
    """Slopes of every channel, of one element, and computed ones; in float and int8."""
    drawing = Drawing("prelu", random)
    x, q = drawing.real(2, 5, 3, 4), drawing.integers(2, 5, 3, 4)
    slopes = [drawing.builder.constant("channel", drawing.weights(5, 1, 1)), drawing.real(2, 5, 3, 4)]
    slopes.append(drawing.builder.constant("one", drawing.weights(1)))
    kind = drawing.int8_like(q.type.shape)
    results = [drawing.builder.node(PRelu(), x, slope) for slope in slopes]
    results += [drawing.builder.node(PRelu(), q, slope, output_types=[kind]) for slope in slopes]
    return drawing.finish(*results)


def where(random: np.random.Generator) -> Problem:
    """By a condition that spreads, between floats and between int8 values."""
    drawing = Drawing("where", random)
    a, b, c = drawing.real(2, 5, 3, 4), drawing.real(2, 1, 3, 4), drawing.real(5, 1, 1)
    condition = drawing.builder.node(Compare(relation="greater"), a, c)
    narrow = drawing.builder.node(Compare(relation="less"), b, drawing.real(1))
    kind = drawing.int8_like((2, 5, 3, 4))
    integers = [drawing.integers(2, 5, 3, 4), drawing.integers(1, 5, 1, 1)]
    return drawing.finish(
        drawing.builder.node(Where(), condition, a, b),
        drawing.builder.node(Where(), narrow, c, a),
        drawing.builder.node(Where(), narrow, *integers, output_types=[kind]),
    )


def comparisons(random: np.random.Generator) -> Problem:
    """Every relation, then booleans and numbers of other types."""
    drawing = Drawing("comparisons", random)
    a, b = drawing.real(3, 17), drawing.real(3, 1)
    found = [drawing.builder.node(Compare(relation=relation), a, b) for relation in RELATIONS]
    both = drawing.builder.node(And(), found[2], found[1])
    either = drawing.builder.node(Or(), both, drawing.builder.node(Not(), found[4]))
    integers = [drawing.builder.node(Cast(to=to), a) for to in (ElementType.INT32, ElementType.INT64)]
    larger = drawing.builder.node(Max(), integers[1], drawing.builder.node(Cast(to=ElementType.INT64), b))
    truths = [drawing.builder.node(Cast(to=ElementType.BOOL), v) for v in (a, larger)]
    back = [drawing.builder.node(Cast(to=ElementType.FLOAT), v) for v in (either, *integers, *truths)]
    wide = drawing.builder.node(Cast(to=ElementType.DOUBLE), a)
    narrow = drawing.builder.node(Cast(to=ElementType.INT32), larger)
    return drawing.finish(*found, either, *integers, *truths, *back, wide, narrow)


PROBLEMS: list[Maker] = [
    *(form(BINARY, shapes) for form in (in_float, in_int8) for shapes in SPREAD[:2]),
    *(form([Mul(), Max()], shapes) for form in (in_float, in_int8) for shapes in SPREAD[2:]),
    constants(quantized=False),
    constants(quantized=True),
    gate,
    prelu,
    where,
    comparisons,
]
