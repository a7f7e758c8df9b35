"""Write a Llama of any size with drawn weights, with its cache as inputs and outputs, as an ONNX file.

    python -m scripts.random_llama FILE [--layers 12 --width 768 --heads 12 --groups 12 --inner 2048 ...]

Nodes are those of an exporter: RMSNorm and rotary embedding in their parts, the causal mask from positions,
keys and values of past tokens as `past_key_values.0.key`, those of all tokens as `present.0.key`. Batch,
tokens and past are free. The head is the transposed embedding, written as a tensor of its own, as exporters
write it. The defaults have 110 million parameters.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from qglow.core.types import Array

SPREAD = 0.02
"""Standard deviation of weights, as language models begin their training."""


@dataclass(frozen=True)
class LlamaSize:
    """Sizes of a Llama. groups: heads of keys and values. inner: width within a feed-forward part."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    groups: int = 12
    inner: int = 2048
    words: int = 32000

    @property
    def depth(self) -> int:
        """Width of a head."""
        return self.width // self.heads


def random_llama(size: LlamaSize, seed: int = 0) -> ModelProto:
    """Tokens, mask, positions and past keys and values to logits and all keys and values."""
    return _Writer(size, seed).model()


class _Writer:
    """The nodes and weights of one model."""

    def __init__(self, size: LlamaSize, seed: int) -> None:
        self._size = size
        self._random = np.random.default_rng(seed)
        self._nodes: list[NodeProto] = []
        self._stored: dict[str, Array] = {}

    def model(self) -> ModelProto:
        """The model with the weights in it."""
        size = self._size
        table = self._weight("embedding", size.words, size.width)
        x = self._node("Gather", table, "input_ids")
        positions = self._node("Unsqueeze", "position_ids", self._integers(-1))
        angles = self._angles(positions)
        seen = self._seen(positions)
        states: list[tuple[str, str]] = []
        for layer in range(size.layers):
            x = self._node("Add", x, self._attention(layer, self._norm(x, f"{layer}.before"), angles, seen))
            x = self._node("Add", x, self._feed_forward(layer, self._norm(x, f"{layer}.between")))
            places = (f"{layer}.key", f"{layer}.value")
            states += [(f"past_key_values.{place}", f"present.{place}") for place in places]
        self._stored["head"] = np.ascontiguousarray(self._stored[table].T)
        self._node("MatMul", self._norm(x, "last"), "head", result="logits")
        whole, real = TensorProto.INT64, TensorProto.FLOAT
        axes = {"input_ids": "new", "attention_mask": "total", "position_ids": "new"}
        heads: list[int | str | None] = ["batch", size.groups]
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self._nodes,
            "llama",
            [info(name, whole, ["batch", axis]) for name, axis in axes.items()]
            + [info(taken, real, [*heads, "past", size.depth]) for taken, _ in states],
            [info("logits", real, ["batch", "new", size.words])]
            + [info(given, real, [*heads, "total", size.depth]) for _, given in states],
            [numpy_helper.from_array(array, name) for name, array in self._stored.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _angles(self, positions: str) -> tuple[str, str]:
        """Cosines and sines [batch, 1, new, depth] of the rotary embedding."""
        depth = self._size.depth
        steps = 10000.0 ** (-np.arange(0, depth, 2, dtype=np.float64) / depth)
        turned = self._node(
            "Mul",
            self._node("Cast", positions, to=TensorProto.FLOAT),
            self._constant(steps.astype(np.float32)),
        )
        both = self._node("Concat", turned, turned, axis=-1)
        one = self._integers(1)
        return (
            self._node("Unsqueeze", self._node("Cos", both), one),
            self._node("Unsqueeze", self._node("Sin", both), one),
        )

    def _seen(self, positions: str) -> str:
        """0 where a token sees another one, else the least float, [batch, 1, new, total]."""
        total = self._node("Gather", self._node("Shape", "attention_mask"), self._number(1))
        others = self._node("Range", self._number(0), total, self._number(1))
        before = self._node("LessOrEqual", others, positions)
        known = self._node("Cast", "attention_mask", to=TensorProto.BOOL)
        both = self._node("And", before, self._node("Unsqueeze", known, self._integers(1)))
        least = self._constant(np.float32(np.finfo(np.float32).min))
        mask = self._node("Where", both, self._constant(np.float32(0.0)), least)
        return self._node("Unsqueeze", mask, self._integers(1))

    def _attention(self, layer: int, x: str, angles: tuple[str, str], seen: str) -> str:
        size = self._size
        queries = self._rotated(self._heads(f"{layer}.q", x, size.heads), angles)
        keys = self._rotated(self._heads(f"{layer}.k", x, size.groups), angles)
        values = self._heads(f"{layer}.v", x, size.groups)
        past = f"past_key_values.{layer}"
        keys = self._node("Concat", f"{past}.key", keys, axis=2, result=f"present.{layer}.key")
        values = self._node("Concat", f"{past}.value", values, axis=2, result=f"present.{layer}.value")
        across = self._node("Transpose", self._shared(keys), perm=[0, 1, 3, 2])
        sharpness = self._constant(np.float32(size.depth**-0.5))
        scores = self._node("Mul", self._node("MatMul", queries, across), sharpness)
        shares = self._node("Softmax", self._node("Add", scores, seen), axis=-1)
        mixed = self._node("MatMul", shares, self._shared(values))
        rows = self._node("Transpose", mixed, perm=[0, 2, 1, 3])
        flat = self._node("Reshape", rows, self._integers(0, -1, size.width))
        return self._node("MatMul", flat, self._weight(f"{layer}.o", size.width, size.width))

    def _heads(self, name: str, x: str, heads: int) -> str:
        """A product as heads, [batch, heads, new, depth]."""
        size = self._size
        rows = self._node("MatMul", x, self._weight(name, size.width, heads * size.depth))
        split = self._node("Reshape", rows, self._integers(0, -1, heads, size.depth))
        return self._node("Transpose", split, perm=[0, 2, 1, 3])

    def _rotated(self, x: str, angles: tuple[str, str]) -> str:
        half, axis = self._size.depth // 2, self._integers(3)
        first = self._node("Slice", x, self._integers(0), self._integers(half), axis)
        second = self._node("Slice", x, self._integers(half), self._integers(self._size.depth), axis)
        turned = self._node("Concat", self._node("Neg", second), first, axis=-1)
        return self._node("Add", self._node("Mul", x, angles[0]), self._node("Mul", turned, angles[1]))

    def _shared(self, x: str) -> str:
        """Keys or values, for each of the heads that share them."""
        size = self._size
        times = size.heads // size.groups
        if times == 1:
            return x
        many = self._node("Unsqueeze", x, self._integers(2))
        many = self._node("Expand", many, self._integers(1, 1, times, 1, 1))
        return self._node("Reshape", many, self._integers(0, size.heads, -1, size.depth))

    def _feed_forward(self, layer: int, x: str) -> str:
        size = self._size
        gate = self._node("MatMul", x, self._weight(f"{layer}.gate", size.width, size.inner))
        swish = self._node("Mul", gate, self._node("Sigmoid", gate))
        up = self._node("MatMul", x, self._weight(f"{layer}.up", size.width, size.inner))
        down = self._weight(f"{layer}.down", size.inner, size.width)
        return self._node("MatMul", self._node("Mul", swish, up), down)

    def _norm(self, x: str, name: str) -> str:
        """Root mean square normalization."""
        squares = self._node("Pow", x, self._constant(np.float32(2.0)))
        mean = self._node("ReduceMean", squares, axes=[-1], keepdims=1)
        root = self._node("Sqrt", self._node("Add", mean, self._constant(np.float32(1e-5))))
        scaled = self._node("Mul", x, self._node("Reciprocal", root))
        gains = 1.0 + SPREAD * self._random.standard_normal(self._size.width, np.float32)
        self._stored[f"{name}.gain"] = gains.astype(np.float32)
        return self._node("Mul", scaled, f"{name}.gain")

    def _weight(self, name: str, *shape: int) -> str:
        self._stored[name] = np.float32(SPREAD) * self._random.standard_normal(shape, np.float32)
        return name

    def _constant(self, array: Array | np.generic) -> str:
        name = f"constant_{len(self._stored)}"
        self._stored[name] = np.asarray(array)
        return name

    def _integers(self, *numbers: int) -> str:
        return self._constant(np.array(numbers, np.int64))

    def _number(self, number: int) -> str:
        return self._constant(np.array(number, np.int64))

    def _node(self, operator: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """Name of the result of a new node."""
        name = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [result or name], name, **attributes))
        return result or name


def main(words: Sequence[str]) -> int:
    """Write one model."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m scripts.random_llama", None, __doc__, formatter_class=layout)
    parser.add_argument("file", type=Path, metavar="FILE")
    sizes = LlamaSize()
    for name in ("layers", "width", "heads", "groups", "inner", "words"):
        shown = f"{getattr(sizes, name)}"
        parser.add_argument(f"--{name}", type=int, default=getattr(sizes, name), metavar="N", help=shown)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the weights (0)")
    options = vars(parser.parse_args(words))
    path, seed = options.pop("file"), options.pop("seed")
    onnx.save(random_llama(LlamaSize(**options), seed), path)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
