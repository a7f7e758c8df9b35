"""Generated models whose inputs have free dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.unit.importer.tiny import save

CHANNELS = 8


def sequence_model(folder: Path) -> Path:
    """Write a 1-D convolution over "x" [N, 4, length], attention over places, and a linear layer."""
    rng = np.random.default_rng(3)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        array = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(array.astype(np.float32), name)

    weights = [
        weight("w", CHANNELS, 4, 3),
        weight("b", CHANNELS),
        weight("q", CHANNELS, CHANNELS),
        weight("k", CHANNELS, CHANNELS),
        weight("o", CHANNELS, 5),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"], pads=[1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("Transpose", ["relu"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "q"], ["tq"]),
        helper.make_node("MatMul", ["t", "k"], ["tk"]),
        helper.make_node("Transpose", ["tk"], ["tkt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["tq", "tkt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "t"], ["mixed"]),
        helper.make_node("Add", ["mixed", "t"], ["sum"]),
        helper.make_node("MatMul", ["sum", "o"], ["y"]),
    ]
    return _write(nodes, weights, {"x": ["N", 4, "length"]}, folder)


def image_model(folder: Path) -> Path:
    """Write two convolutions and a maximum over places, of "x" [1, 3, H, W]."""
    rng = np.random.default_rng(4)
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) / 5).astype(np.float32), name)
        for name, shape in (("w", (CHANNELS, 3, 3, 3)), ("v", (2, CHANNELS, 1, 1)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["m", "v"], ["y"]),
    ]
    return _write(nodes, weights, {"x": [1, 3, "H", "W"]}, folder)


def pair_model(folder: Path) -> Path:
    """Write the sum of "a" and "b", which share the symbol of their second dimension."""
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    return _write(nodes, [], {"a": [1, "length"], "b": [1, "length"]}, folder)


def twins_model(folder: Path) -> Path:
    """Write the Relu of "x" [N, 5] twice, as "y" and "z"."""
    nodes = [helper.make_node("Relu", ["x"], [name]) for name in "yz"]
    return _write(nodes, [], {"x": ["N", 5]}, folder, "yz")


def shared_bias_model(folder: Path) -> Path:
    """Write two convolutions over "x" [N, 8, length], one after the other, with the same weights and bias."""
    rng = np.random.default_rng(5)
    arrays = {"w": rng.standard_normal((CHANNELS, CHANNELS, 3)) / 5, "b": rng.standard_normal(CHANNELS)}
    nodes = [
        helper.make_node("Conv", [x, "w", "b"], [y], pads=[1, 1]) for x, y in (("x", "first"), ("first", "y"))
    ]
    weights = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    return _write(nodes, weights, {"x": ["N", CHANNELS, "length"]}, folder)


def running_sum_model(folder: Path) -> Path:
    """Write the running sum of "x" [N] along its free axis, a product whose constant has the size of it."""
    axis = [numpy_helper.from_array(np.array(0, np.int64), "axis")]
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("CumSum", ["a", "axis"], ["y"])]
    return _write(nodes, axis, {"x": ["N"]}, folder)


def _write(
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    inputs: dict[str, list[int | str]],
    folder: Path,
    outputs: str = "y",
) -> Path:
    taken = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in inputs.items()]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(nodes, "g", taken, given, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return save(model, folder)
