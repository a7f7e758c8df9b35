"""Resizing by nearest neighbours and by interpolation, images and other ranks."""

from __future__ import annotations

import numpy as np

from qglow.graph.operator import Operator
from qglow.graph.ops.resize import Resize, ResizeNearest
from tests.suite.problem import Drawing, Maker, Problem, moderate

IMAGE = (2, 19, 5, 6)
TWICE, ODD = (2, 19, 10, 12), (2, 19, 3, 13)
CASES: list[tuple[Operator, tuple[int, ...]]] = [
    (ResizeNearest(TWICE, (1.0, 1.0, 2.0, 2.0), "asymmetric", "floor"), IMAGE),
    (ResizeNearest(ODD, (1.0, 1.0, 0.6, 2.2)), IMAGE),
    (ResizeNearest((1, 3, 7), (1.0, 1.0, 1.75), "half_pixel", "ceil"), (1, 3, 4)),
    (ResizeNearest(IMAGE, (1.0, 1.0, 1.0, 1.0)), IMAGE),
    (Resize(TWICE, (1.0, 1.0, 2.0, 2.0)), IMAGE),
    (Resize((2, 33, 4, 12), (1.0, 11.0, 1.0, 2.0), coordinates="align_corners"), (2, 3, 4, 6)),
    (Resize(ODD, (1.0, 1.0, 0.6, 2.2), mode="cubic"), IMAGE),
    (Resize(ODD, (1.0, 1.0, 0.6, 2.2), antialias=True), IMAGE),
    (
        Resize(
            ODD,
            (1.0, 1.0, 0.6, 2.2),
            coordinates="tf_crop_and_resize",
            roi=(0.0, 0.0, -0.2, 0.1, 1.0, 1.0, 0.8, 1.3),
            extrapolation=0.5,
        ),
        IMAGE,
    ),
    (Resize((2, 3, 5), (1.0, 1.0, 1.25)), (2, 3, 4)),
    (Resize(IMAGE, (1.0, 1.0, 1.0, 1.0)), IMAGE),
]


def form(operator: Operator, shape: tuple[int, ...], quantized: bool) -> Maker:
    """One operator; interpolated int8 has parameters of its own."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"{operator.name}_{'int8' if quantized else 'float'}", random)
        x = drawing.integers(*shape) if quantized else drawing.real(*shape)
        result = operator.infer([x.type])[0].shape
        if not quantized:
            drawing.inputs[x.name] = moderate(random, shape)
            return drawing.finish(drawing.builder.node(operator, x))
        keeps = isinstance(operator, ResizeNearest)
        kind = x.type.with_shape(result) if keeps else drawing.int8_like(result)
        return drawing.finish(drawing.builder.node(operator, x, output_types=[kind]))

    return make


PROBLEMS: list[Maker] = [
    form(operator, shape, quantized) for operator, shape in CASES for quantized in (True, False)
]
