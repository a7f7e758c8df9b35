"""Transposed convolutions as they are imported: zeros between elements, then a convolution."""

from __future__ import annotations

import numpy as np

from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.movement import Pad
from qglow.graph.ops.pool import MaxPool
from qglow.graph.ops.shape import Reshape
from tests.suite.problem import Drawing, Maker, Problem, moderate


def transposed(channels: int, stride: int, group: int, quantized: bool) -> Maker:
    """A 3x3 window over an image whose elements lie `stride` apart; int8 zeros are zero points."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"transposed_{stride}_{'int8' if quantized else 'float'}", random)
        shape = (2, channels, 5, 4)
        x = drawing.integers(*shape) if quantized else drawing.real(*shape)
        if not quantized:
            drawing.inputs[x.name] = moderate(random, shape)
        x = _moved(drawing, MaxPool(kernel=(1, 1)), x)
        x = _moved(drawing, Reshape(shape=(2, channels, 5, 1, 4, 1)), x)
        x = _moved(drawing, Pad(pads=(*(0,) * 9, stride - 1, 0, stride - 1)), x)
        x = _moved(drawing, Reshape(shape=(2, channels, 5 * stride, 4 * stride)), x)
        operator = Conv(pads=(2, 2, 1, 1), group=group)
        filters = (6, channels // group, 3, 3)
        if not quantized:
            w = drawing.builder.constant("w", drawing.weights(*filters))
            return drawing.finish(drawing.builder.node(operator, x, w), exact=False)
        w, bias = drawing.int8_weights(x, 0, *filters)
        kind = drawing.int8_like(operator.infer([x.type, w.type, None])[0].shape)
        return drawing.finish(drawing.builder.node(operator, x, w, bias, output_types=[kind]))

    return make


def _moved(drawing: Drawing, operator: Operator, x: Value) -> Value:
    shape = operator.infer([x.type])[0].shape
    return drawing.builder.node(operator, x, output_types=[x.type.with_shape(shape)])


PROBLEMS: list[Maker] = [
    transposed(channels, stride, group, quantized)
    for channels, stride, group in ((20, 2, 1), (6, 3, 6))
    for quantized in (True, False)
]
