"""Encoders of any size with drawn weights, whose batch and length are free: for timing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qglow.core.types import Array

LENGTH = "length"


@dataclass(frozen=True)
class EncoderSize:
    """Sizes of an encoder of layers of attention and of two products each."""

    layers: int = 4
    width: int = 384
    heads: int = 6
    inner: int = 1536


@dataclass
class _Work:
    size: EncoderSize
    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def given(self, array: Array) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def linear(self, x: str, rows: int, columns: int) -> str:
        weight = self.random.normal(0.0, 1 / math.sqrt(rows), (rows, columns)).astype(np.float32)
        bias = self.random.normal(0.0, 0.1, columns).astype(np.float32)
        return self.add("Add", self.add("MatMul", x, self.given(weight)), self.given(bias))

    def normalized(self, x: str) -> str:
        ones, zeros = np.ones(self.size.width, np.float32), np.zeros(self.size.width, np.float32)
        return self.add("LayerNormalization", x, self.given(ones), self.given(zeros), axis=-1)

    def attention(self, x: str) -> str:
        size, depth = self.size, self.size.width // self.size.heads
        split = self.given(np.array([0, 0, size.heads, depth]))
        query, key, value = (
            self.add(
                "Transpose", self.add("Reshape", self.linear(x, size.width, size.width), split), perm=order
            )
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = self.add(
            "Mul", self.add("MatMul", query, key), self.given(np.array(depth**-0.5, np.float32))
        )
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), value)
        joined = self.given(np.array([0, 0, size.width]))
        rows = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        return self.linear(rows, size.width, size.width)


def drawn_encoder(size: EncoderSize = EncoderSize(), seed: int = 0) -> onnx.ModelProto:
    """An encoder of embeddings [batch, length, width] as in BERT: sums are normalized behind each part."""
    work = _Work(size, np.random.default_rng(seed))
    value = "embeddings"
    for _ in range(size.layers):
        value = work.normalized(work.add("Add", value, work.attention(value)))
        hidden = work.add("Gelu", work.linear(value, size.width, size.inner))
        value = work.normalized(work.add("Add", value, work.linear(hidden, size.inner, size.width)))
    shape: list[str | int | None] = ["batch", LENGTH, size.width]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("embeddings", value)]
    graph = helper.make_graph(work.nodes, "encoder", ends[:1], ends[1:], work.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
