"""Random small graphs: chains and joins of every float operator, some of it dead or repeated."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from qglow.core.types import Array, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Clip, Mul, Relu, Sub
from qglow.graph.ops.functions import Sigmoid, Tanh
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.movement import Pad, Slice
from qglow.graph.ops.normalization import Affine, BatchNormalization
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from qglow.graph.ops.shape import Concat, Identity, Reshape, Shape, Transpose
from qglow.graph.ops.softmax import Softmax


def random_graph(rng: random.Random, length: int = 12) -> Graph:
    """A valid graph of `length` random steps over images of two channels and over matrices."""
    return _RandomGraph(rng).graph(length)


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Normally distributed inputs."""
    rng = np.random.default_rng(seed)
    return {value.name: rng.normal(size=value.type.shape).astype(np.float32) for value in graph.inputs}


class _RandomGraph:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._data = np.random.default_rng(rng.randrange(2**31))
        self._builder = GraphBuilder("random")
        self._constants = 0
        self._images: list[Value] = []
        self._matrices: list[Value] = []

    def graph(self, length: int) -> Graph:
        self._images.append(self._builder.input("image", float_type(2, 2, 4, 4)))
        self._matrices.append(self._builder.input("matrix", float_type(2, 3)))
        for _ in range(length):
            self._rng.choice((self._image_step, self._image_step, self._matrix_step))()
        values = [v for v in [*self._images, *self._matrices] if v.producer is not None]
        if not values:
            values = [self._builder.node(Relu(), self._matrices[0])]
        count = min(len(values), self._rng.randint(1, 3))
        return self._builder.finish(*self._rng.sample(values, count))

    def _constant(self, *shape: int, plain: bool = False) -> Value:
        self._constants += 1
        data = self._data.normal(size=shape)
        if plain:
            data = np.full(shape, self._rng.choice((0.0, 1.0)))
        return self._builder.constant(f"c{self._constants}", data.astype(np.float32))

    def _image_step(self) -> None:
        x = self._rng.choice(self._images)
        steps: list[Callable[[Value], Value]] = [
            self._conv,
            self._batchnorm,
            self._unary,
            self._unary,
            self._arithmetic,
            self._join,
            self._move,
            self._pool,
        ]
        result = self._rng.choice(steps)(x)
        self._images.append(result)
        if self._rng.random() < 0.2:
            self._to_matrix(result)

    def _matrix_step(self) -> None:
        x = self._rng.choice(self._matrices)
        steps: list[Callable[[Value], Value]] = [self._product, self._unary, self._arithmetic, self._rows]
        self._matrices.append(self._rng.choice(steps)(x))

    def _conv(self, x: Value) -> Value:
        bias = self._constant(2) if self._rng.random() < 0.5 else None
        group = self._rng.choice((1, 2))
        size = self._rng.choice((1, 3))
        pads = (size // 2,) * 4
        w = self._constant(2, 2 // group, size, size)
        return self._builder.node(Conv(pads=pads, group=group), x, w, bias)

    def _batchnorm(self, x: Value) -> Value:
        scale, bias, mean = (self._constant(2) for _ in range(3))
        if self._rng.random() < 0.3:
            return self._builder.node(Affine(), x, scale, bias)
        variance = self._builder.constant(f"v{self._constants}", np.array([0.5, 2.0], np.float32))
        return self._builder.node(BatchNormalization(epsilon=0.01), x, scale, bias, mean, variance)

    def _unary(self, x: Value) -> Value:
        operators = (
            Relu(),
            Relu(),
            Clip(lo=0.0, hi=6.0),
            Clip(lo=-0.5),
            Clip(),
            Identity(),
            Sigmoid(),
            Tanh(),
            Softmax(axis=1),
        )
        return self._builder.node(self._rng.choice(operators), x)

    def _arithmetic(self, x: Value) -> Value:
        channels = (x.type.shape[1],) + (1,) * (len(x.type.shape) - 2)
        operator = self._rng.choice((Add(), Sub(), Mul(), Add(lo=0.0)))
        other = self._constant(*channels, plain=self._rng.random() < 0.5)
        operands = (x, other) if self._rng.random() < 0.7 else (other, x)
        return self._builder.node(operator, *operands)

    def _join(self, x: Value) -> Value:
        partners = [v for v in self._images if v.type == x.type]
        return self._builder.node(self._rng.choice((Add(), Sub(), Mul())), x, self._rng.choice(partners))

    def _move(self, x: Value) -> Value:
        node = self._builder.node
        batch, channels, height, width = x.type.shape
        choice = self._rng.randrange(5)
        if choice == 0:
            swapped = node(Transpose(perm=(0, 1, 3, 2)), x)
            return node(Transpose(perm=(0, 1, 3, 2)), swapped)
        if choice == 1:
            flat = node(Reshape(shape=(batch, channels * height * width)), x)
            return node(Reshape(shape=x.type.shape), flat)
        if choice == 2:
            padded = node(Pad(pads=(0, 0, 1, 0, 0, 0, 0, 1), value=0.5), x)
            return node(Slice(starts=(0, 0, 1, 0), ends=padded.type.shape, steps=(1, 1, 1, 1)), padded)
        if choice == 3:
            both = node(Concat(axis=1), x, x)
            return node(
                Slice(starts=(0, 1, 0, 0), ends=(batch, 1 + channels, height, width), steps=(1,) * 4), both
            )
        node(Shape(), x)
        return node(Concat(axis=0), x)

    def _pool(self, x: Value) -> Value:
        if min(x.type.shape[2:]) < 2:
            return self._builder.node(GlobalAveragePool(), x)
        pools = (
            MaxPool(kernel=(3, 3), pads=(1, 1, 1, 1)),
            AveragePool(kernel=(2, 2)),
            MaxPool(kernel=(1, 1)),
        )
        return self._builder.node(self._rng.choice(pools), x)

    def _to_matrix(self, x: Value) -> None:
        mean = self._builder.node(GlobalAveragePool(), x)
        self._matrices.append(self._builder.node(Reshape(shape=mean.type.shape[:2]), mean))

    def _product(self, x: Value) -> Value:
        w = self._constant(x.type.shape[1], self._rng.choice((2, 3)))
        if self._rng.random() < 0.5:
            product = self._builder.node(MatMul(), x, w)
            return self._builder.node(Add(), product, self._constant(w.type.shape[1]))
        bias = self._constant(w.type.shape[1]) if self._rng.random() < 0.5 else None
        return self._builder.node(Gemm(), x, w, bias)

    def _rows(self, x: Value) -> Value:
        turned = self._builder.node(Transpose(perm=(1, 0)), x)
        return self._builder.node(Transpose(perm=(1, 0)), turned)
