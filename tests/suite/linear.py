"""Matrix products, int8 and float, from one row of one element on."""

from __future__ import annotations

import numpy as np

from qglow.core.types import ElementType, TensorType
from qglow.graph.graph import Value
from qglow.graph.ops.linear import Gemm, MatMul
from tests.suite.problem import Drawing, Maker, Problem, moderate

SHAPES = [(1, 1, 1), (1, 2048, 202), (3, 10, 5), (4, 64, 130), (17, 33, 16)]


def int8(m: int, k: int, n: int) -> Maker:
    """[m, k] by [k, n] in int8, once to int8 with a fused Relu and once to float."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"gemm_int8_{m}x{k}x{n}", random)
        x = drawing.integers(m, k)
        w, bias = drawing.int8_weights(x, 1, k, n)
        y = drawing.builder.node(Gemm(lo=0.0), x, w, bias, output_types=[drawing.int8_like((m, n))])
        z = drawing.builder.node(Gemm(), x, w, bias, output_types=[TensorType(ElementType.FLOAT, (m, n))])
        return drawing.finish(y, z)

    return make


def real(m: int, k: int, n: int) -> Maker:
    """[m, k] by [k, n] in float."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"gemm_float_{m}x{k}x{n}", random)
        x = drawing.real(m, k)
        drawing.inputs[x.name] = moderate(random, (m, k))
        w = drawing.builder.constant("w", drawing.weights(k, n))
        bias = drawing.builder.constant("bias", drawing.weights(n))
        return drawing.finish(drawing.builder.node(Gemm(), x, w, bias), exact=False)

    return make


def computed(random: np.random.Generator) -> Problem:
    """A second operand that the graph computes, with a bias and bounds."""
    drawing = Drawing("gemm_computed", random)
    x, w = (_moderate(drawing, *shape) for shape in ((19, 33), (33, 37)))
    bias = drawing.builder.constant("bias", drawing.weights(37))
    return drawing.finish(drawing.builder.node(Gemm(lo=-2.0, hi=5.0), x, w, bias), exact=False)


def stack(left: tuple[int, ...], right: tuple[int, ...]) -> Maker:
    """A stack of products of two computed operands."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"matmul_{left}_{right}", random)
        operands = [_moderate(drawing, *shape) for shape in (left, right)]
        return drawing.finish(drawing.builder.node(MatMul(), *operands), exact=False)

    return make


def int8_stack(left: tuple[int, ...], right: tuple[int, ...], zeros: tuple[int | None, int | None]) -> Maker:
    """Products of two int8 activations with these zero points, once to int8 and once to float."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"matmul_int8_{left}_{right}_{zeros}", random)
        pair = zip((left, right), zeros, strict=True)
        operands = [drawing.integers(*shape, zero_point=zero) for shape, zero in pair]
        (shape,) = (kind.shape for kind in MatMul().infer([v.type for v in operands]))
        y = drawing.builder.node(MatMul(), *operands, output_types=[drawing.int8_like(shape)])
        z = drawing.builder.node(MatMul(), *operands, output_types=[TensorType(ElementType.FLOAT, shape)])
        return drawing.finish(y, z)

    return make


def int8_constant(random: np.random.Generator) -> Problem:
    """A stack of constant matrices on the left."""
    drawing = Drawing("matmul_int8_constant", random)
    x, parameters = drawing.integers(2, 3, 9, 20), drawing.parameters()
    data = random.integers(-128, 128, (3, 5, 9)).astype(np.int8)
    w = drawing.builder.constant("w", data, parameters)
    kind = drawing.int8_like((2, 3, 5, 20))
    return drawing.finish(drawing.builder.node(MatMul(), w, x, output_types=[kind]))


def _moderate(drawing: Drawing, *shape: int) -> Value:
    value = drawing.real(*shape)
    drawing.inputs[value.name] = moderate(drawing.random, shape)
    return value


STACKS = [
    ((2, 3, 5, 7), (2, 3, 7, 33)),
    ((2, 1, 5, 7), (3, 7, 16)),
    ((1, 9, 40), (4, 40, 3)),
    ((7,), (7, 5)),
    ((2, 3, 7), (7,)),
    ((5, 64), (64, 64)),
]
LONG = [
    ((1, 1), (1, 1)),
    ((3, 2), (2, 1)),
    ((33, 515), (515, 131)),
    ((7, 1, 3), (1, 3, 17)),
    ((13, 64), (4, 64, 65)),
]
PROBLEMS: list[Maker] = [
    *(form(*shape) for form in (int8, real) for shape in SHAPES),
    computed,
    *(stack(left, right) for left, right in STACKS),
    *(int8_stack(left, right, (None, None)) for left, right in STACKS),
    *(int8_stack((2, 6, 19), (2, 19, 70), zeros) for zeros in ((-128, 127), (127, -128), (5, 0), (0, 3))),
    *(int8_stack(left, right, (None, None)) for left, right in LONG),
    int8_constant,
]
