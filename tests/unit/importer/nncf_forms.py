"""A network as NNCF quantizes it: a scale for each channel of what goes into depthwise convolutions."""

from __future__ import annotations

import numpy as np

from tests.unit.importer.foreign_writer import ForeignWriter

OPSET = 17


def network() -> ForeignWriter:
    """Inverted bottlenecks with Relu, Clip and HardSwish, squeeze and excitation, and an addition."""
    rng = np.random.default_rng(8)
    w = ForeignWriter({"x": rng.normal(0, 1, (1, 3, 10, 10)).astype(np.float32)}, np.int8, OPSET)

    def conv(value: str, *shape: int, group: int = 1) -> str:
        bias, edge = w.constant(rng.normal(0, 0.1, shape[0])), shape[-1] // 2
        attributes = {"group": group, "pads": [edge] * 4, "kernel_shape": list(shape[2:])}
        return w.node("Conv", value, w.weights(*shape), bias, **attributes)

    def positive(value: str) -> str:
        return w.quantized_by_channel(value, np.uint8)

    first = positive(w.node("Relu", conv(w.quantized("x"), 8, 3, 3, 3)))
    second = positive(w.node("Clip", conv(first, 8, 1, 3, 3, group=8), w.constant(0), w.constant(6)))
    third = w.quantized(conv(second, 16, 1, 3, 3, group=8))  # two filters for each channel
    fourth = w.node("HardSwish", conv(third, 8, 16, 1, 1))
    fifth = w.quantized(w.node("Relu", conv(w.quantized_by_channel(fourth, np.int8), 8, 1, 3, 3, group=8)))
    gate = w.quantized(w.node("HardSigmoid", w.node("GlobalAveragePool", second), alpha=1 / 6, beta=0.5))
    last = w.quantized(w.node("Mul", fifth, gate))
    w.outputs = [w.quantized(conv(last, 4, 8, 1, 1))]
    return w
