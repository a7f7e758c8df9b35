"""Random graphs over rows of tokens: values that are spread, turned, joined and multiplied."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from qglow.core.types import Shape, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.operator import Operator, OperatorTypeError
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul, Relu, Sub
from qglow.graph.ops.functions import Abs, Erf, Gelu, HardSwish, Neg, Sigmoid, Swish, Tanh
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.movement import Gather, Slice
from qglow.graph.ops.normalization import LayerNormalization
from qglow.graph.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from qglow.graph.ops.selection import Max, Min, Where
from qglow.graph.ops.shape import Concat, Reshape, Transpose
from qglow.graph.ops.softmax import Softmax

LARGEST = 1 << 14
"""Elements of a value at most."""
UNARY: Sequence[Operator] = (
    Relu(), Clip(lo=-0.5, hi=1.5), Sigmoid(), Tanh(), Gelu(), Swish(), HardSwish(), Abs(), Neg(), Erf(),
)  # fmt: skip
BINARY: Sequence[Operator] = (Add(), Sub(), Mul(), Add(), Mul(), Max(), Min(), Add(lo=0.0))


def random_tokens(rng: random.Random, length: int = 14) -> Graph:
    """A valid graph of `length` random steps over inputs [B, T, C], [T, C], [T] and [B, T]."""
    return _RandomTokens(rng).graph(length)


@dataclass
class _RandomTokens:
    rng: random.Random
    builder: GraphBuilder = field(default_factory=lambda: GraphBuilder("tokens"))
    values: list[Value] = field(default_factory=list)

    def graph(self, length: int) -> Graph:
        batch, tokens = self.rng.choice((1, 2, 3)), self.rng.choice((1, 5, 16, 32))
        width = self.rng.choice((3, 16, 64))
        for name, shape in (
            ("x", (batch, tokens, width)),
            ("rows", (tokens, width)),
            ("places", (tokens,)),
            ("mask", (batch, tokens)),
        ):
            self.values.append(self.builder.input(name, float_type(*shape)))
        steps: list[Callable[[Value], Value]] = [
            *[self._unary] * 3, *[self._binary] * 4, *[self._view] * 3, *[self._product] * 3,
            self._pairs, self._matmul, self._normalize, self._reduce, self._choose, self._move,
        ]  # fmt: skip
        while length:
            # Late values are likelier, so that chains get long.
            x = self.values[-1 - min(int(self.rng.expovariate(0.4)), len(self.values) - 1)]
            try:
                made = self.rng.choice(steps)(x)
            except OperatorTypeError:
                continue  # shapes that do not go together
            if 0 < made.type.size <= LARGEST and 1 <= len(made.type.shape) <= 5:
                self.values.append(made)
            length -= 1
        made = [value for value in self.values if value.producer is not None]
        if not made:
            made = [self.builder.node(Relu(), self.values[0])]
        some = self.rng.sample(made, min(len(made), 2))
        return self.builder.finish(*dict.fromkeys([made[-1], *some]))

    def _constant(self, *shape: int) -> Value:
        data = np.random.default_rng(self.rng.randrange(2**31)).normal(size=shape)
        name = f"c{self.rng.randrange(2**60)}"
        return self.builder.constant(name, (data / max(shape[0], 1) ** 0.5).astype(np.float32))

    def _partner(self, x: Value) -> Value:
        """A value of a shape that is broadcast with that of another one, itself among them."""
        fitting = [v for v in self.values if _broadcast_size(x.type.shape, v.type.shape) is not None]
        return self.rng.choice(fitting)

    def _unary(self, x: Value) -> Value:
        return self.builder.node(self.rng.choice(UNARY), x)

    def _binary(self, x: Value) -> Value:
        other = self._constant(x.type.shape[-1]) if self.rng.random() < 0.2 else self._partner(x)
        operands = [x, other] if self.rng.random() < 0.6 else [other, x]
        if self.rng.random() < 0.1:
            away = self.builder.node(Add(), self.builder.node(Abs(), operands[1]), self._one())
            return self.builder.node(Div(), operands[0], away)
        return self.builder.node(self.rng.choice(BINARY), *operands)

    def _one(self) -> Value:
        return self.builder.constant(f"one{self.rng.randrange(2**60)}", np.ones(1, np.float32))

    def _view(self, x: Value) -> Value:
        shape = x.type.shape
        if self.rng.random() < 0.6:
            place = self.rng.randint(0, len(shape))
            return self.builder.node(Reshape((*shape[:place], 1, *shape[place:])), x)
        if self.rng.random() < 0.5 and len(shape) > 1:
            place = self.rng.randrange(len(shape) - 1)
            return self.builder.node(
                Reshape((*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :])), x
            )
        perm = list(range(len(shape)))
        self.rng.shuffle(perm)
        return self.builder.node(Transpose(tuple(perm)), x)

    def _pairs(self, x: Value) -> Value:
        """Combine all pairs of places of the last axis, spread along two axes, and compute on with them."""
        *outer, places = x.type.shape
        column, row = (
            self.builder.node(Reshape((*outer, *shape)), x) for shape in ((places, 1), (1, places))
        )
        operands = [column, row] if self.rng.random() < 0.5 else [row, column]
        return self._unary(self.builder.node(self.rng.choice(BINARY), *operands))

    def _product(self, x: Value) -> Value:
        width = x.type.shape[-1]
        w = self._constant(width, self.rng.choice((width, width, 3, 16, 64)))
        if len(x.type.shape) == 2 and self.rng.random() < 0.5:
            return self.builder.node(Gemm(), x, w, self._constant(w.type.shape[1]))
        return self.builder.node(MatMul(), x, w)

    def _matmul(self, x: Value) -> Value:
        other = self.rng.choice(self.values)
        perm = [*range(len(other.type.shape) - 2), -1, -2]
        if len(perm) > 1 and x.type.shape[-1] == other.type.shape[-1]:
            turned = tuple(axis % len(perm) for axis in perm[-len(other.type.shape) :])
            return self.builder.node(MatMul(), x, self.builder.node(Transpose(turned), other))
        return self.builder.node(MatMul(), x, other)

    def _normalize(self, x: Value) -> Value:
        width = x.type.shape[-1]
        if self.rng.random() < 0.5:
            return self.builder.node(Softmax(axis=-1), x)
        scale, bias = self._constant(width), self._constant(width)
        return self.builder.node(LayerNormalization(axis=-1, epsilon=1e-3), x, scale, bias)

    def _reduce(self, x: Value) -> Value:
        axis = self.rng.randrange(len(x.type.shape))
        kind = self.rng.choice((ReduceMean, ReduceSum, ReduceMax))
        return self.builder.node(kind(axes=(axis,), keepdims=self.rng.random() < 0.7), x)

    def _choose(self, x: Value) -> Value:
        other = self._partner(x)
        least = self.builder.node(Compare("less"), x, other)
        return self.builder.node(Where(), least, self.rng.choice((x, other)), self._partner(x))

    def _move(self, x: Value) -> Value:
        shape, axis = x.type.shape, self.rng.randrange(len(x.type.shape))
        choice = self.rng.randrange(3)
        if choice == 0:
            return self.builder.node(Concat(axis=axis), x, x)
        if choice == 1:
            indices = np.array([self.rng.randrange(shape[axis]) for _ in range(self.rng.choice((1, 3)))])
            name = f"i{self.rng.randrange(2**60)}"
            return self.builder.node(Gather(axis), x, self.builder.constant(name, indices))
        start = self.rng.randrange(shape[axis])
        starts = tuple(start if a == axis else 0 for a in range(len(shape)))
        return self.builder.node(Slice(starts=starts, ends=shape, steps=(1,) * len(shape)), x)


def _broadcast_size(one: Shape, other: Shape) -> int | None:
    """Elements of the common shape of two; None where they have none, or too large a one."""
    try:
        size = prod(np.broadcast_shapes(one, other))
    except ValueError:
        return None
    return size if size <= LARGEST else None
