"""Pooling, int8 and float: pads, ceil_mode, counted padding, global windows."""

from __future__ import annotations

import numpy as np

from qglow.core.types import TensorType
from qglow.graph.operator import Operator
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from tests.suite.problem import Drawing, Maker, Problem, moderate

CASES: dict[str, tuple[tuple[int, int, int, int], Operator]] = {
    "max_3x3": ((1, 64, 13, 12), MaxPool(kernel=(3, 3), strides=(2, 2))),
    "max_padded": ((2, 33, 8, 7), MaxPool(kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))),
    "max_ceil": ((1, 5, 8, 9), MaxPool(kernel=(3, 3), strides=(2, 2), ceil_mode=True)),
    "average_2x2": ((1, 17, 6, 6), AveragePool(kernel=(2, 2), strides=(2, 2))),
    "average_padded": ((2, 7, 5, 6), AveragePool(kernel=(3, 3), pads=(1, 1, 1, 1))),
    "average_counted": ((1, 7, 5, 6), AveragePool(kernel=(3, 3), pads=(1, 1, 1, 1), count_include_pad=True)),
    "max_dilated": ((1, 20, 9, 8), MaxPool(kernel=(3, 2), dilations=(2, 3), pads=(2, 1, 0, 3))),
    "average_dilated": (
        (2, 17, 9, 8),
        AveragePool(kernel=(2, 3), strides=(2, 1), pads=(1, 2, 1, 0), dilations=(3, 2)),
    ),
    "average_ceil_counted": (
        (1, 7, 8, 9),
        AveragePool(kernel=(3, 3), strides=(2, 3), pads=(1, 0, 1, 1), ceil_mode=True, count_include_pad=True),
    ),
    "global": ((3, 130, 7, 7), GlobalAveragePool()),
    "global_large": ((1, 16, 25, 5), GlobalAveragePool()),
}


def int8(name: str) -> Maker:
    """The case in int8."""

    def make(random: np.random.Generator) -> Problem:
        shape, operator = CASES[name]
        drawing = Drawing(f"pool_int8_{name}", random)
        x = drawing.integers(*shape)
        kind = drawing.int8_like(operator.infer([x.type])[0].shape)
        if isinstance(operator, MaxPool):
            kind = TensorType(kind.element, kind.shape, x.type.quantization)
        return drawing.finish(drawing.builder.node(operator, x, output_types=[kind]))

    return make


def real(name: str) -> Maker:
    """The case in float, equal in every bit."""

    def make(random: np.random.Generator) -> Problem:
        shape, operator = CASES[name]
        drawing = Drawing(f"pool_float_{name}", random)
        x = drawing.real(*shape)
        drawing.inputs[x.name] = moderate(random, shape)
        return drawing.finish(drawing.builder.node(operator, x))

    return make


PROBLEMS: list[Maker] = [form(name) for form in (int8, real) for name in CASES]
