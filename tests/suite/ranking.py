"""Places and first elements along last and middle axes, with ties, of images and of plain tensors."""

from __future__ import annotations

import numpy as np

from qglow.core.types import TensorType
from qglow.graph.operator import Operator
from qglow.graph.ops.pool import MaxPool
from qglow.graph.ops.ranking import ArgMax, ArgMin, TopK, TopKIndices
from tests.suite.problem import Drawing, Maker, Problem

PLACES: list[tuple[tuple[int, ...], Operator]] = [
    ((3, 37), ArgMax(axis=1)),
    ((3, 37), ArgMax(axis=-1, keepdims=False, last=True)),
    ((19, 35), ArgMin(axis=0, keepdims=False)),
    ((2, 21, 5, 6), ArgMax(axis=1, keepdims=False)),
    ((2, 21, 5, 6), ArgMin(axis=1, last=True)),
    ((2, 7, 5, 6), ArgMax(axis=3)),
    ((2, 7, 5, 20), ArgMax(axis=2, last=True)),
    ((1, 16), ArgMin(axis=1)),
    ((4, 1, 3), ArgMax(axis=1, keepdims=False)),
]
RANKED: list[tuple[tuple[int, ...], int, int, bool]] = [
    ((3, 37), 1, 5, True),
    ((3, 37), -1, 37, False),
    ((19, 35), 0, 4, True),
    ((2, 21, 5, 6), 1, 3, True),
    ((2, 7, 5, 6), 3, 6, False),
    ((2, 40), 1, 1, True),
    ((2, 40), 1, 0, True),
]


def real(shape: tuple[int, ...], *operators: Operator) -> Maker:
    """Of floats, among them infinities, NaN, both zeros and ties."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"{operators[0].name}_float", random)
        x = drawing.real(*shape)
        flat = drawing.inputs[x.name].reshape(-1)
        flat[random.integers(0, flat.size, 4)] = np.nan
        return drawing.finish(*(drawing.builder.node(operator, x) for operator in operators))

    return make


def int8(shape: tuple[int, ...], *operators: Operator) -> Maker:
    """Of int8; images come from a pool, so that channels lie innermost."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"{operators[0].name}_int8", random)
        x = drawing.integers(*shape)
        if len(shape) == 4:
            x = drawing.builder.node(MaxPool(kernel=(1, 1)), x, output_types=[x.type])
        values = []
        for operator in operators:
            (kind,) = operator.infer([x.type])
            if kind.is_float:
                kind = TensorType(x.type.element, kind.shape, x.type.quantization)
            values.append(drawing.builder.node(operator, x, output_types=[kind]))
        return drawing.finish(*values)

    return make


PROBLEMS: list[Maker] = [
    *(form(shape, operator) for form in (real, int8) for shape, operator in PLACES),
    *(
        form(shape, TopK(axis, k, largest), TopKIndices(axis, k, largest))
        for form in (real, int8)
        for shape, axis, k, largest in RANKED
    ),
]
