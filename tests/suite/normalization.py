"""Normalizations by the input's own statistics, float; of plain tensors and of images from a pool."""

from __future__ import annotations

import numpy as np

from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Div, Mul
from qglow.graph.ops.functions import PowerOf, Reciprocal, Sqrt
from qglow.graph.ops.normalization import LRN, InstanceNormalization, LayerNormalization
from qglow.graph.ops.pool import MaxPool
from qglow.graph.ops.reduce import ReduceMean
from tests.suite.problem import Drawing, Maker, Problem, moderate

LAYERS: list[tuple[tuple[int, ...], int, bool]] = [
    ((5, 37), -1, True),
    ((2, 3, 4, 16), 2, False),
    ((2, 6, 5, 4), 1, True),
]


def layer(shape: tuple[int, ...], axis: int, biased: bool) -> Maker:
    """A LayerNormalization."""

    def make(random: np.random.Generator) -> Problem:
        drawing, x = _image("layer_normalization", random, shape)
        vectors = [drawing.weights(*shape[axis:]) for _ in range(1 + biased)]
        values = [drawing.builder.constant(f"v{i}", v) for i, v in enumerate(vectors)]
        return drawing.finish(drawing.builder.node(LayerNormalization(axis=axis), x, *values))

    return make


def instance(*shape: int) -> Maker:
    """An InstanceNormalization."""

    def make(random: np.random.Generator) -> Problem:
        drawing, x = _image("instance_normalization", random, shape)
        values = [drawing.builder.constant(n, drawing.weights(shape[1])) for n in ("scale", "bias")]
        return drawing.finish(drawing.builder.node(InstanceNormalization(), x, *values))

    return make


def response(operator: Operator, *shape: int) -> Maker:
    """An LRN."""

    def make(random: np.random.Generator) -> Problem:
        drawing, x = _image("lrn", random, shape)
        return drawing.finish(drawing.builder.node(operator, x))

    return make


def by_squares(shape: tuple[int, ...], divides: bool, power: bool, scaled: bool) -> Maker:
    """A division by the root of the mean of squares, written out as exporters do."""

    def make(random: np.random.Generator) -> Problem:
        drawing, x = _image("mean_of_squares", random, shape)
        b = drawing.builder
        squares = b.node(PowerOf(2.0), x) if power else b.node(Mul(), x, x)
        mean = b.node(ReduceMean((len(shape) - 1,)), squares)
        root = b.node(Sqrt(), b.node(Add(), mean, b.constant("epsilon", np.array(1e-5, np.float32))))
        result = b.node(Div(), x, root) if divides else b.node(Mul(), x, b.node(Reciprocal(), root))
        if scaled:
            result = b.node(Mul(), b.constant("scale", drawing.weights(shape[-1])), result)
        return drawing.finish(result)

    return make


def _image(name: str, random: np.random.Generator, shape: tuple[int, ...]) -> tuple[Drawing, Value]:
    drawing = Drawing(name, random)
    x = drawing.real(*shape)
    drawing.inputs[x.name] = moderate(random, shape)
    return drawing, drawing.builder.node(MaxPool(kernel=(1, 1)), x) if len(shape) == 4 else x


PROBLEMS: list[Maker] = [
    *(layer(*case) for case in LAYERS),
    by_squares((3, 5, 64), True, True, True),
    by_squares((4, 37), False, False, True),
    by_squares((2, 3, 130), True, False, False),
    by_squares((7, 1), False, True, False),
    instance(2, 20, 5, 6),
    instance(2, 3, 7),
    response(LRN(size=5), 2, 20, 5, 6),
    response(LRN(size=5, alpha=0.3), 1, 96, 2, 3),
    response(LRN(size=4, alpha=0.5, beta=0.5, bias=2.0), 1, 7, 9),
    response(LRN(size=16, alpha=0.5, beta=1.25), 2, 37, 3),
    response(LRN(size=37, alpha=2.0, beta=0.25), 1, 50, 3, 2),
    response(LRN(size=3, alpha=2.0, beta=1.0), 3, 16),
]
