"""Scales of rows, and products of which every row has a scale of its own."""

from __future__ import annotations

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import float_type
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.rows import RowScales
from qglow.quantization.dynamic import scale_rows
from tests.suite.problem import Drawing, Maker, Problem

SHAPES: list[tuple[int, ...]] = [(3, 37), (1, 16), (5, 1), (2, 3, 40), (19,), (4, 130)]
PRODUCTS: list[tuple[int, int, int, bool]] = [
    (1, 64, 32, True),
    (5, 37, 19, True),
    (16, 8, 3, False),
    (33, 130, 48, True),
]


def scales(shape: tuple[int, ...]) -> Maker:
    """Of floats, among them infinities, NaN and both zeros."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("row_scales", random)
        x = drawing.real(*shape)
        drawing.inputs[x.name].reshape(-1)[random.integers(0, x.type.size, 1)] = np.nan
        drawing.inputs[x.name][0] *= np.float32(1e-38)
        return drawing.finish(drawing.builder.node(RowScales(), x))

    return make


def product(rows: int, depth: int, columns: int, bias: bool) -> Maker:
    """Of two products that read the same rows, some of them without finite values."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("product_of_scaled_rows", random)
        b, x = drawing.builder, drawing.real(rows, depth)
        found = []
        for number in range(2):
            w = b.constant(f"w{number}", drawing.weights(depth, columns))
            terms = b.constant(f"bias{number}", drawing.weights(columns)) if bias else None
            found.append(b.node(Gemm(lo=0.0 if number else -np.inf), x, w, terms))
        problem = drawing.finish(*found)
        graph = problem.graph
        scale_rows(graph, {n: None for n in graph.nodes if n.operator.accumulate is not None}, PassLog())
        assert graph.outputs[0].type == float_type(rows, columns)
        return problem

    return make


PROBLEMS: list[Maker] = [
    *(scales(shape) for shape in SHAPES),
    *(product(*sizes) for sizes in PRODUCTS),
]
