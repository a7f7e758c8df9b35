"""Networks quantized by PyTorch's pt2e flow, as the newer exporter of PyTorch leaves them.

The forms were read from exports by torch 2.14 and torchao 0.18: opset 20; parameters are scalars; weights
have zero points, and biases are float32; a QuantizeLinear and DequantizeLinear stand behind each annotated
operator, also behind a Reshape; weights of linear layers are transposed behind their DequantizeLinear.
XNNPACK's quantizer annotates most operators, X86Inductor's only what goes into convolutions and linear
layers.
"""

from __future__ import annotations

import numpy as np

from tests.unit.importer.foreign_writer import ForeignWriter

OPSET = 20


def network(activations: type, everywhere: bool, per_channel: bool = True) -> ForeignWriter:
    """A residual network: convolutions, Clip, Add, MaxPool, Mul by a constant, Concat, mean and Gemm.

    everywhere: results are quantized behind each operator, as for XNNPACK.
    """
    rng = np.random.default_rng(4)
    w = ForeignWriter({"x": rng.normal(0, 1, (1, 3, 12, 12)).astype(np.float32)}, activations, OPSET)
    axis = 0 if per_channel else None

    def behind(value: str) -> str:
        return w.quantized(value) if everywhere else value

    def conv(value: str, *shape: int, group: int = 1) -> str:
        edge = shape[-1] // 2
        bias = w.constant(rng.normal(0, 0.1, shape[0]))
        attributes = {"group": group, "pads": [edge] * 4, "kernel_shape": list(shape[2:])}
        return w.node("Conv", value, w.weights(*shape, axis=axis), bias, **attributes)

    first = w.quantized(w.node("Relu", conv(w.quantized("x"), 8, 3, 3, 3)))
    second = behind(conv(first, 8, 1, 3, 3, group=8))
    second = w.quantized(w.node("Clip", second, w.constant(0.0), w.constant(6.0)))
    third = behind(conv(second, 8, 8, 1, 1))
    joined = behind(w.node("Relu", w.node("Add", first, third)))
    pooled = behind(w.node("MaxPool", joined, kernel_shape=[2, 2], strides=[2, 2]))
    factor = _scalar(w) if everywhere else w.constant(0.5)
    both = w.node("Concat", pooled, behind(w.node("Mul", pooled, factor)), axis=1)
    part = w.node("Slice", both, *(w.constant([n], np.int64) for n in (2, 12, 1, 1)))
    mean = w.node("ReduceMean", part, w.constant([2, 3], np.int64), keepdims=1)
    rows = w.quantized(w.node("Reshape", mean, w.constant([1, 10], np.int64)))
    bias = w.constant(rng.normal(0, 0.1, 5))
    w.outputs = [behind(w.node("Gemm", rows, w.weights(5, 10, axis=axis), bias, transB=1))]
    return w


def _scalar(w: ForeignWriter) -> str:
    """A number that the quantizer has quantized: 0.5."""
    operands = (
        w.constant(127, w.activations),
        w.constant(0.5 / 127),
        w.constant(0, w.activations),
    )
    return w.node("DequantizeLinear", *operands)


def transformer(activations: type, everywhere: bool) -> ForeignWriter:
    """A layer of a transformer over vectors [1, 6, 16] with two heads, and a mean over the places."""
    rng = np.random.default_rng(5)
    w = ForeignWriter({"x": rng.normal(0, 1, (1, 6, 16)).astype(np.float32)}, activations, OPSET)

    def behind(value: str) -> str:
        return w.quantized(value) if everywhere else value

    def norm(value: str) -> str:
        return w.node("LayerNormalization", value, w.constant(np.ones(16)), w.constant(np.zeros(16)), axis=-1)

    def linear(value: str, out: int, width: int) -> str:
        turned = w.node("Transpose", w.weights(out, width), perm=[1, 0])
        return w.node("Add", w.node("MatMul", value, turned), w.constant(rng.normal(0, 0.1, out)))

    def heads(value: str, *order: int) -> str:
        scale = w.ranged(value)
        if everywhere:
            value = w.quantized(value, scale)
        value = w.node("Reshape", value, w.constant([1, 6, 2, 8], np.int64))
        if everywhere:
            value = w.quantized(value, scale)
        return w.node("Transpose", value, perm=list(order))

    start = behind("x")
    plain = w.quantized(norm(start))
    query, value = (heads(linear(plain, 16, 16), 0, 2, 1, 3) for _ in range(2))
    key = heads(linear(plain, 16, 16), 0, 2, 3, 1)
    scores = w.node("Div", w.node("MatMul", query, key), w.constant(8**0.5))
    mixed = w.node("MatMul", w.node("Softmax", scores, axis=-1), value)
    mixed = w.node("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = w.quantized(w.node("Reshape", mixed, w.constant([1, 6, 16], np.int64)))
    added = behind(w.node("Add", start, behind(linear(mixed, 16, 16))))
    wide = behind(linear(w.quantized(norm(added)), 32, 16))
    back = behind(linear(w.quantized(w.node("Gelu", wide, approximate="none")), 16, 32))
    added = w.node("Add", added, back)
    mean = w.quantized(w.node("ReduceMean", added, w.constant([1], np.int64), keepdims=0))
    w.outputs = [behind(w.node("Gemm", mean, w.weights(5, 16), w.constant(np.zeros(5)), transB=1))]
    return w
