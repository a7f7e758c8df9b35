"""Reductions and running sums along last, middle and scattered axes, of images and of plain tensors."""

from __future__ import annotations

import numpy as np

from qglow.core.types import TensorType
from qglow.graph.operator import Operator
from qglow.graph.ops.pool import MaxPool
from qglow.graph.ops.reduce import CumSum, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from tests.suite.problem import Drawing, Maker, Problem, moderate

AXES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 37), (1,)),
    ((37, 19), (0,)),
    ((2, 20, 5, 6), (2, 3)),
    ((2, 20, 5, 6), (1,)),
    ((2, 7, 5, 6), (0, 2)),
    ((2, 3, 4, 5), (0, 1, 2, 3)),
    ((4, 1, 3), (1,)),
]
REAL: list[type[Operator]] = [ReduceSum, ReduceMean, ReduceProd, ReduceMax, ReduceMin]
INT8: list[type[Operator]] = [ReduceMean, ReduceMax, ReduceMin]


def real(kind: type[Operator], shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> Maker:
    """In float, equal in every bit."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"{kind.name}_float", random)
        x = drawing.real(*shape)
        drawing.inputs[x.name] = moderate(random, shape)
        return drawing.finish(drawing.builder.node(kind(axes, keepdims), x))  # type: ignore[call-arg]

    return make


def int8(kind: type[Operator], shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> Maker:
    """In int8; images come from a pool, so that channels lie innermost."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"{kind.name}_int8", random)
        x = drawing.integers(*shape)
        if len(shape) == 4:
            x = drawing.builder.node(MaxPool(kernel=(1, 1)), x, output_types=[x.type])
        operator = kind(axes, keepdims)  # type: ignore[call-arg]
        result = operator.infer([x.type])[0].shape
        quantization = drawing.parameters() if kind is ReduceMean else x.type.quantization
        kind_of = TensorType(x.type.element, result, quantization)
        return drawing.finish(drawing.builder.node(operator, x, output_types=[kind_of]))

    return make


def running(shape: tuple[int, ...], axis: int, exclusive: int, reverse: int) -> Maker:
    """Sums of floats, among them infinities, NaN and both zeros; of images with channels innermost."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("CumSum", random)
        x = drawing.real(*shape)
        flat = drawing.inputs[x.name].reshape(-1)
        flat[: flat.size // 3] = moderate(random, (flat.size // 3,))
        flat[0], flat[flat.size // 2] = -0.0, np.nan
        if len(shape) == 4:
            x = drawing.builder.node(MaxPool(kernel=(1, 1)), x)
        return drawing.finish(drawing.builder.node(CumSum(axis, exclusive > 0, reverse > 0), x))

    return make


RUNNING = [((3, 37), 1), ((37, 19), 0), ((2, 20, 5, 6), 1), ((2, 7, 5, 36), -2), ((9,), 0)]
PROBLEMS: list[Maker] = [
    *(running(*case, exclusive, reverse) for case in RUNNING for exclusive in (0, 1) for reverse in (0, 1)),
    *(
        form(kind, shape, axes, index % 2 == 0)
        for form, kinds in ((real, REAL), (int8, INT8))
        for kind in kinds
        for index, (shape, axes) in enumerate(AXES)
        if kind not in (ReduceProd, ReduceMin) or index in (0, 3)
    ),
]
