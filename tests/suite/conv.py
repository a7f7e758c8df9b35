"""Convolutions: int8 and float; kernels, strides, pads, dilations, groups, channels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.core.types import TensorType
from qglow.graph.ops.conv import Conv
from tests.suite.problem import Drawing, Maker, Problem, moderate


@dataclass(frozen=True)
class Case:
    """One shape of convolution: n, c, h, w, then filters, kernel, and attributes."""

    image: tuple[int, int, int, int]
    filters: int
    kernel: tuple[int, int]
    operator: Conv


CASES: dict[str, Case] = {
    "first_layer": Case((2, 3, 17, 13), 32, (3, 3), Conv(strides=(2, 2), pads=(1, 1, 1, 1), lo=0.0)),
    "first_layer_7x7": Case((1, 3, 15, 15), 16, (7, 7), Conv(strides=(2, 2), pads=(3, 3, 3, 3))),
    "one_channel": Case((3, 1, 9, 11), 5, (10, 4), Conv(pads=(5, 1, 4, 2), lo=0.0)),
    "pointwise": Case((1, 64, 7, 7), 130, (1, 1), Conv()),
    "pointwise_strided": Case((2, 20, 8, 9), 17, (1, 1), Conv(strides=(2, 2))),
    "three_by_three": Case((1, 32, 6, 5), 64, (3, 3), Conv(pads=(1, 1, 1, 1), lo=0.0, hi=1.5)),
    "asymmetric_pads": Case((1, 7, 6, 5), 9, (3, 2), Conv(pads=(0, 1, 2, 0), strides=(1, 2))),
    "dilated": Case((1, 6, 11, 10), 8, (3, 3), Conv(pads=(2, 2, 2, 2), dilations=(2, 2))),
    "grouped": Case((2, 12, 5, 5), 18, (3, 3), Conv(pads=(1, 1, 1, 1), group=3)),
    "depthwise": Case((2, 33, 9, 7), 33, (3, 3), Conv(pads=(1, 1, 1, 1), group=33, lo=0.0, hi=6.0)),
    "depthwise_strided": Case(
        (1, 130, 8, 9), 130, (3, 3), Conv(pads=(1, 1, 1, 1), strides=(2, 2), group=130)
    ),
    "depth_multiplier": Case((1, 6, 6, 6), 12, (5, 5), Conv(pads=(2, 2, 2, 2), group=6)),
    "single_pixel": Case((1, 1, 1, 1), 1, (1, 1), Conv()),
}


NARROW: dict[str, Case] = {
    "half_a_vector": Case((1, 8, 6, 5), 8, (3, 3), Conv(pads=(1, 1, 1, 1), lo=0.25)),
    "half_a_vector_bounded": Case((1, 8, 6, 8), 8, (1, 1), Conv(lo=0.25, hi=0.5)),
}
"""Few channels within bounds: stored in parts of eight bytes."""


def int8(name: str, case: Case) -> Maker:
    """The case in int8."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"conv_int8_{name}", random)
        x = drawing.integers(*case.image)
        w, bias = drawing.int8_weights(x, 0, *_filters(case))
        shape = case.operator.infer([x.type, w.type, None])[0].shape
        kind = drawing.int8_like(shape)
        # A second result in float: it needs no detour through int8.
        plain = TensorType(x.type.element.FLOAT, shape)
        y = drawing.builder.node(case.operator, x, w, bias, output_types=[kind])
        z = drawing.builder.node(case.operator, x, w, bias, output_types=[plain])
        return drawing.finish(y, z)

    return make


def real(name: str, case: Case) -> Maker:
    """The case in float."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"conv_float_{name}", random)
        x = drawing.real(*case.image)
        drawing.inputs[x.name] = moderate(random, case.image)
        w = drawing.builder.constant("w", drawing.weights(*_filters(case)))
        bias = drawing.builder.constant("bias", drawing.weights(case.filters))
        return drawing.finish(drawing.builder.node(case.operator, x, w, bias), exact=False)

    return make


def _filters(case: Case) -> tuple[int, int, int, int]:
    return (case.filters, case.image[1] // case.operator.group, *case.kernel)


PROBLEMS: list[Maker] = [
    *(int8(name, case) for name, case in CASES.items()),
    *(real(name, case) for name, case in CASES.items()),
    *(int8(name, case) for name, case in NARROW.items()),
]
