"""Matrix products, int8 and float, from one row of one element on."""

from __future__ import annotations

import numpy as np

from qglow.core.types import ElementType, TensorType
from qglow.graph.ops.linear import Gemm
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


PROBLEMS: list[Maker] = [form(*shape) for form in (int8, real) for shape in SHAPES]
