"""Elementwise operators, affine maps, tables, borders between float and int8, and softmax."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Quantization
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Clip, Mul, Relu, Sub
from qglow.graph.ops.functions import Sigmoid, Tanh
from qglow.graph.ops.normalization import Affine
from qglow.graph.ops.quantize import Quantize, Rescale
from qglow.graph.ops.softmax import LogSoftmax, Softmax
from tests.suite.problem import Drawing, Maker, Problem, moderate

SHAPES = [(1, 64, 5, 4), (2, 3, 7, 5), (3, 17)]
BINARY: list[Operator] = [Add(), Add(lo=0.0), Sub(), Mul(), Mul(lo=-1.0, hi=1.0)]
UNARY: list[Operator] = [Relu(), Clip(lo=0.0, hi=6.0), Sigmoid(), Tanh()]


def binary_int8(operator: Operator, shape: tuple[int, ...]) -> Maker:
    """Two int8 operands with parameters of their own."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"{operator.name}_int8", random)
        a, b = drawing.integers(*shape), drawing.integers(*shape)
        return drawing.finish(drawing.builder.node(operator, a, b, output_types=[drawing.int8_like(shape)]))

    return make


def tied_add(random: np.random.Generator) -> Problem:
    """s_y = 2 s_x: every odd sum is a tie."""
    drawing = Drawing("add_int8_ties", random)
    parameters = Quantization.per_tensor(0.25, 3)
    a, b = (drawing.real(1, 8, 6, 6) for _ in range(2))
    integers = [
        drawing.builder.node(Quantize(), v, output_types=[v.type.quantized(parameters)]) for v in (a, b)
    ]
    kind = a.type.quantized(Quantization.per_tensor(0.5, -1))
    return drawing.finish(drawing.builder.node(Add(), *integers, output_types=[kind]))


def binary_real(operator: Operator, shape: tuple[int, ...]) -> Maker:
    """Two float operands."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"{operator.name}_float", random)
        return drawing.finish(drawing.builder.node(operator, drawing.real(*shape), drawing.real(*shape)))

    return make


def unary_int8(operator: Operator, shape: tuple[int, ...]) -> Maker:
    """One int8 operand; Sigmoid and Tanh become tables."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"{operator.name}_int8", random)
        x = drawing.integers(*shape)
        return drawing.finish(drawing.builder.node(operator, x, output_types=[drawing.int8_like(shape)]))

    return make


def unary_real(operator: Operator, shape: tuple[int, ...]) -> Maker:
    """One float operand."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"{operator.name}_float", random)
        return drawing.finish(drawing.builder.node(operator, drawing.real(*shape)))

    return make


def affine(quantized: bool, shape: tuple[int, ...]) -> Maker:
    """A scale and a shift per channel."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("affine_int8" if quantized else "affine_float", random)
        x = drawing.integers(*shape) if quantized else drawing.real(*shape)
        factors = [drawing.builder.constant(name, drawing.weights(shape[1])) for name in ("r", "t")]
        kinds = [drawing.int8_like(shape)] if quantized else None
        return drawing.finish(drawing.builder.node(Affine(lo=0.0), x, *factors, output_types=kinds))

    return make


def rescale(random: np.random.Generator) -> Problem:
    """int8 to int8 with other parameters."""
    drawing = Drawing("rescale", random)
    x = drawing.integers(2, 5, 3, 3)
    return drawing.finish(
        drawing.builder.node(Rescale(lo=0.0), x, output_types=[drawing.int8_like(x.type.shape)])
    )


def softmax(random: np.random.Generator) -> Problem:
    """Rows of more and of fewer than 16 elements."""
    drawing = Drawing("softmax", random)
    x = drawing.real(3, 37)
    drawing.inputs[x.name] = 8 * moderate(random, (3, 37))
    y = drawing.real(2, 12)
    drawing.inputs[y.name] = moderate(random, (2, 12))
    return drawing.finish(*(drawing.builder.node(f(), v) for f in (Softmax, LogSoftmax) for v in (x, y)))


PROBLEMS: list[Maker] = [
    *(
        form(operator, shape)
        for form in (binary_int8, binary_real)
        for operator in BINARY
        for shape in SHAPES
    ),
    *(form(operator, shape) for form in (unary_int8, unary_real) for operator in UNARY for shape in SHAPES),
    *(affine(quantized, shape) for quantized in (True, False) for shape in SHAPES),
    tied_add,
    rescale,
    softmax,
]
