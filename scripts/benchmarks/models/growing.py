"""Networks of any number of nodes, of small tensors with drawn weights: for the cost of tools, not kernels.

The same network comes out everywhere: weights are drawn from a normal distribution, seeded by kind and size.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from qglow.core.types import Array

EDGE, CHANNELS = 6, 8
"""Pixels along an edge, and channels, of the images of `residual` and `unary`."""
LENGTH, WIDTH, HEADS = 8, 16, 2
"""Tokens, features of a token, and heads, of `transformer`."""


def growing_network(kind: str, nodes: int) -> ModelProto:
    """A network of one of KINDS with as many nodes, the last block cut where it is full. Raises KeyError."""
    network = _Network(f"{kind}{nodes}", nodes)
    KINDS[kind](network)
    return network.model()


def growing_samples(model: ModelProto, count: int) -> dict[str, Array]:
    """Samples for one of these networks by the input's name, stacked along the batch axis."""
    [given] = model.graph.input
    shape = [axis.dim_value for axis in given.type.tensor_type.shape.dim]
    return {given.name: np.random.default_rng(7).standard_normal((count, *shape[1:]), np.float32)}


class _Network:
    """A graph that grows at its end until it has enough nodes."""

    def __init__(self, name: str, nodes: int) -> None:
        self._name = name
        self._wanted = nodes
        self._random = np.random.default_rng(zlib.crc32(name.encode()))
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[TensorProto] = []
        self.input: tuple[int, ...] = ()
        self.last = "input"

    @property
    def full(self) -> bool:
        """Whether it has enough nodes."""
        return len(self._nodes) >= self._wanted

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """A further node; its output, which is called like the node. A full network stays as it is."""
        if self.full:
            return self.last
        self.last = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [self.last], self.last, **attributes))
        return self.last

    def drawn(self, *shape: int, gain: float = 1.0) -> str:
        """A drawn weight; `gain`: the deviation of a sum over all axes but the first."""
        deviation = gain / math.sqrt(math.prod(shape[1:]))
        return self.given(self._random.normal(0.0, deviation, shape).astype(np.float32))

    def given(self, array: Array) -> str:
        """A constant."""
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def model(self) -> ModelProto:
        """The network; its output is that of the last node."""
        kind = TensorProto.FLOAT
        given = helper.make_tensor_value_info("input", kind, self.input)
        result = helper.make_tensor_value_info(self.last, kind, None)
        graph = helper.make_graph(self._nodes, self._name, [given], [result], self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def _residual(network: _Network) -> None:
    """Blocks of two convolutions, each with a Relu, and the sum with the block's input."""
    network.input = (1, CHANNELS, EDGE, EDGE)
    value = network.last
    while not network.full:
        inner = value
        for _ in range(2):
            weight, bias = (
                network.drawn(CHANNELS, CHANNELS, 3, 3, gain=0.5),
                network.drawn(CHANNELS, gain=0.1),
            )
            inner = network.add("Conv", inner, weight, bias, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            inner = network.add("Relu", inner)
        value = network.add("Add", value, inner)


def _unary(network: _Network) -> None:
    """Functions of one operand, one after the other."""
    network.input = (1, CHANNELS, EDGE, EDGE)
    while not network.full:
        for operator in ("Tanh", "Sigmoid", "Exp", "Neg", "Softplus", "Abs"):
            network.add(operator, network.last)


def _transformer(network: _Network) -> None:
    """Blocks of attention in heads and of a layer between two products, each added to what it reads."""
    network.input = (1, LENGTH, WIDTH)
    depth = WIDTH // HEADS
    heads = network.given(np.array([1, LENGTH, HEADS, depth]))
    joined = network.given(np.array([1, LENGTH, WIDTH]))
    sharpness = network.given(np.array(depth**-0.5, np.float32))
    value = network.last
    while not network.full:
        rows = _normalized(network, value)
        query, key, values = (
            network.add(
                "Transpose", network.add("Reshape", _linear(network, rows, WIDTH, WIDTH), heads), perm=order
            )
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = network.add("Mul", network.add("MatMul", query, key), sharpness)
        mixed = network.add("MatMul", network.add("Softmax", scores, axis=-1), values)
        mixed = network.add("Reshape", network.add("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        value = network.add("Add", value, _linear(network, mixed, WIDTH, WIDTH))
        hidden = network.add("Relu", _linear(network, _normalized(network, value), WIDTH, 2 * WIDTH))
        value = network.add("Add", value, _linear(network, hidden, 2 * WIDTH, WIDTH))


def _normalized(network: _Network, value: str) -> str:
    scale, bias = network.given(np.ones(WIDTH, np.float32)), network.given(np.zeros(WIDTH, np.float32))
    return network.add("LayerNormalization", value, scale, bias, axis=-1)


def _linear(network: _Network, value: str, rows: int, columns: int) -> str:
    product = network.add("MatMul", value, network.drawn(rows, columns))
    return network.add("Add", product, network.drawn(columns, gain=0.1))


KINDS: dict[str, Callable[[_Network], None]] = {
    "residual": _residual,
    "unary": _unary,
    "transformer": _transformer,
}
