"""Networks of TFLite, as tf2onnx writes them: opset 13, integers at both ends, a Transpose around each
convolution.

A convolution is Transpose, Conv, Transpose between a DequantizeLinear and a QuantizeLinear; its activation is
in the range of the latter. Weights lie as TFLite has them (OHWI, and [1, H, W, C] for depthwise ones) and are
transposed behind their DequantizeLinear; biases are int32. Softmax and logistic have the fixed scale 1/256
and the smallest integer for zero, tanh 1/128 and the middle.
"""

from __future__ import annotations

import numpy as np

from tests.unit.importer.foreign_writer import ForeignWriter

OPSET = 13
TO_PLANES, TO_PIXELS = [0, 3, 1, 2], [0, 2, 3, 1]


def network(activations: type, per_channel: bool, weight_zero: int = 0) -> ForeignWriter:
    """Convolutions of both kinds, an addition, a mean, then a linear layer with three kinds of results.

    weight_zero: zero point of all weights, which then are uint8 with one scale, as in the first TFLite files.
    """
    limits = np.iinfo(activations)
    rng = np.random.default_rng(6)
    pixels = rng.integers(limits.min, limits.max + 1, (1, 8, 8, 3)).astype(activations)
    w = ForeignWriter({"x": pixels}, activations, OPSET)
    dtype = np.uint8 if weight_zero else np.int8

    def weights_of(given: tuple[float, int], *shape: int, along: int = 0) -> tuple[str, str]:
        axis, channels = along if per_channel else None, shape[along]
        return w.weights_and_bias(given, *shape, axis=axis, channels=channels, dtype=dtype, zero=weight_zero)

    def conv(value: str, given: tuple[float, int], *shape: int, deep: bool = False) -> str:
        weights, bias = weights_of(given, *shape, along=3 if deep else 0)
        weights = w.node("Transpose", weights, perm=[3, 0, 1, 2] if deep else TO_PLANES)
        edge = shape[1] // 2
        attributes = {"group": shape[3] if deep else 1, "pads": [edge] * 4, "kernel_shape": list(shape[1:3])}
        planes = w.node("Transpose", value, perm=TO_PLANES)
        return w.node("Transpose", w.node("Conv", planes, weights, bias, **attributes), perm=TO_PIXELS)

    x = 2 / 255, (limits.min + limits.max + 1) // 2
    start = w.node("DequantizeLinear", "x", w.constant(x[0]), w.constant(x[1], activations))
    six = 6 / 255, int(limits.min)
    first = w.quantized(conv(start, x, 8, 3, 3, 3), six)
    second = w.quantized(conv(first, six, 1, 3, 3, 8, deep=True), six)
    third = w.quantized(conv(second, six, 8, 1, 1, 8))
    added = w.node("Add", first, third)
    sums = w.ranged(added)
    added = w.quantized(added, sums)
    mean = w.node("ReduceMean", added, axes=[1, 2], keepdims=0)
    means = w.ranged(mean)
    rows = w.quantized(mean, means)
    weights, bias = weights_of(means, 5, 8)
    scores = w.node("MatMul", rows, w.node("Transpose", weights, perm=[1, 0]))
    scores = w.quantized(w.node("Add", scores, bias))
    _finish(w, scores)
    return w


def _finish(w: ForeignWriter, scores: str) -> None:
    """Probabilities, logistic and tanh of the scores, in integers."""
    limits = np.iinfo(w.activations)
    unit, middle = (1 / 256, int(limits.min)), (1 / 128, (int(limits.min) + int(limits.max) + 1) // 2)
    for kind, parameters in (("Softmax", unit), ("Sigmoid", unit), ("Tanh", middle)):
        attributes = {"axis": -1} if kind == "Softmax" else {}
        w.outputs.append(w.integers(w.node(kind, scores, **attributes), parameters)[0])
