"""Networks with and without attention, built as exporters leave them after the usual passes."""

from __future__ import annotations

import numpy as np

from qglow.core.types import ElementType, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Div, Mul, Relu
from qglow.graph.ops.functions import Gelu, Neg, PowerOf, Sigmoid, Sqrt, Swish
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.movement import Gather, Slice
from qglow.graph.ops.normalization import LayerNormalization
from qglow.graph.ops.pool import GlobalAveragePool
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Concat, Reshape, Transpose
from qglow.graph.ops.softmax import Softmax

TOKENS, WIDTH, HEADS, DEPTH, HIDDEN = 6, 16, 2, 8, 24


class Network:
    """A builder with drawn weights; names of values start with what they are."""

    def __init__(self) -> None:
        self.builder = GraphBuilder("network")
        self._random = np.random.default_rng(0)
        self._count = 0

    def input(self, *shape: int) -> Value:
        return self.builder.input("x", float_type(*shape))

    def constant(self, *shape: int, scale: float = 0.3) -> Value:
        self._count += 1
        data = scale * self._random.normal(size=shape)
        return self.builder.constant(f"c{self._count}", data.astype(np.float32))

    def add(self, operator: Operator, *inputs: Value | None, name: str | None = None) -> Value:
        return self.builder.node(operator, *inputs, name=name)

    def linear(self, x: Value, columns: int, name: str) -> Value:
        """Rows of x times weights, with x [1, T, C] as rows and back."""
        *outer, last = x.type.shape
        rows = self.add(Reshape((int(np.prod(outer)), last)), x, name=f"{name}.rows")
        product = self.add(Gemm(), rows, self.constant(last, columns), self.constant(columns), name=name)
        return self.add(Reshape((*outer, columns)), product, name=f"{name}.shape")

    def norm(self, x: Value, name: str) -> Value:
        return self.add(
            LayerNormalization(), x, self.constant(WIDTH, scale=1.0), self.constant(WIDTH), name=name
        )

    def root_mean_square(self, x: Value, name: str) -> Value:
        """RMSNorm as elementary operators."""
        squares = self.add(PowerOf(2.0), x, name=f"{name}.squares")
        mean = self.add(ReduceMean((2,)), squares, name=f"{name}.mean")
        root = self.add(Sqrt(), self.add(Add(), mean, self.constant(), name=f"{name}.eps"))
        return self.add(
            Mul(), self.add(Div(), x, root, name=f"{name}.div"), self.constant(WIDTH, scale=1.0), name=name
        )

    def heads(self, x: Value, name: str, count: int = HEADS) -> Value:
        split = self.add(Reshape((1, TOKENS, count, DEPTH)), x, name=f"{name}.split")
        return self.add(Transpose((0, 2, 1, 3)), split, name=f"{name}.heads")

    def rotated(self, x: Value, name: str) -> Value:
        """Rotary embedding in halves."""
        count, half = x.type.shape[1], DEPTH // 2
        first = self.add(Slice((0, 0, 0, 0), (1, count, TOKENS, half), (1, 1, 1, 1)), x)
        second = self.add(Slice((0, 0, 0, half), (1, count, TOKENS, DEPTH), (1, 1, 1, 1)), x)
        turned = self.add(Concat(3), self.add(Neg(), second), first)
        cosine = self.add(Mul(), x, self.constant(TOKENS, DEPTH))
        sine = self.add(Mul(), turned, self.constant(TOKENS, DEPTH))
        return self.add(Add(), cosine, sine, name=name)

    def attention(self, q: Value, k: Value, v: Value, name: str, masked: str = "add") -> Value:
        """Attention of values in heads, joined again, before the last product."""
        keys = self.add(Transpose((0, 1, 3, 2)), k, name=f"{name}.keys")
        scores = self.add(MatMul(), q, keys, name=f"{name}.scores")
        scaled = self.add(Div(), scores, self.builder.constant(f"{name}.root", np.float32(2.8)))
        if masked == "where":
            allowed = self.builder.constant(f"{name}.allowed", np.tri(TOKENS, dtype=bool))
            low = self.builder.constant(f"{name}.low", np.float32(-1e4))
            scaled = self.add(Where(), allowed, scaled, low, name=f"{name}.masked")
        else:
            scaled = self.add(Add(), scaled, self.constant(TOKENS, TOKENS), name=f"{name}.masked")
        shares = self.add(Softmax(), scaled, name=f"{name}.softmax")
        mixed = self.add(MatMul(), shares, v, name=f"{name}.mixed")
        back = self.add(Transpose((0, 2, 1, 3)), mixed, name=f"{name}.back")
        return self.add(Reshape((1, TOKENS, WIDTH)), back, name=f"{name}.joined")

    def block(self, x: Value, name: str, masked: str = "add") -> Value:
        """A block as BERT has it: norms behind the sums, Gelu."""
        q, k, v = (self.heads(self.linear(x, WIDTH, f"{name}.{n}"), f"{name}.{n}") for n in "qkv")
        out = self.linear(self.attention(q, k, v, name, masked), WIDTH, f"{name}.out")
        middle = self.norm(self.add(Add(), out, x, name=f"{name}.sum1"), f"{name}.norm1")
        up = self.add(Gelu(), self.linear(middle, HIDDEN, f"{name}.up"), name=f"{name}.gelu")
        down = self.linear(up, WIDTH, f"{name}.down")
        return self.norm(self.add(Add(), down, middle, name=f"{name}.sum2"), f"{name}.norm2")

    def llama_block(self, x: Value, name: str) -> Value:
        """A block as Llama has it: norms before, rotary embedding, shared heads, SwiGLU."""
        normed = self.root_mean_square(x, f"{name}.norm1")
        q = self.rotated(self.heads(self.linear(normed, WIDTH, f"{name}.q"), f"{name}.q"), f"{name}.qr")
        k = self.rotated(self.heads(self.linear(normed, DEPTH, f"{name}.k"), f"{name}.k", 1), f"{name}.kr")
        v = self.heads(self.linear(normed, DEPTH, f"{name}.v"), f"{name}.v", 1)
        repeats = self.builder.constant(f"{name}.repeats", np.zeros(HEADS, np.int64))
        k, v = (self.add(Gather(1), each, repeats) for each in (k, v))
        out = self.linear(self.attention(q, k, v, name), WIDTH, f"{name}.out")
        middle = self.add(Add(), x, out, name=f"{name}.sum1")
        normed = self.root_mean_square(middle, f"{name}.norm2")
        gate = self.add(Swish(), self.linear(normed, HIDDEN, f"{name}.gate"), name=f"{name}.swish")
        inner = self.add(Mul(), gate, self.linear(normed, HIDDEN, f"{name}.up"), name=f"{name}.product")
        return self.add(Add(), middle, self.linear(inner, WIDTH, f"{name}.down"), name=f"{name}.sum2")

    def convolved(self, x: Value, channels: int, kernel: int, name: str, stride: int = 1) -> Value:
        weights = self.constant(channels, x.type.shape[1], kernel, kernel)
        pads = ((kernel - 1) // 2,) * 4
        return self.add(Conv(strides=(stride, stride), pads=pads), x, weights, name=name)

    def finish(self, *results: Value) -> Graph:
        return self.builder.finish(*results)


def embedded(network: Network) -> Value:
    """Embeddings of words and positions."""
    words = network.builder.input("tokens", TensorType(ElementType.INT64, (1, TOKENS)))
    table = network.add(Gather(0), network.constant(20, WIDTH, scale=1.0), words, name="words")
    return network.add(Add(), table, network.constant(TOKENS, WIDTH), name="positions")


def bert(masked: str = "add") -> Graph:
    """Two blocks over embeddings, and a head on the first token."""
    network = Network()
    x = network.norm(embedded(network), "norm0")
    for name in ("a", "b"):
        x = network.block(x, name, masked)
    first = network.add(Slice((0, 0, 0), (1, 1, WIDTH), (1, 1, 1)), x, name="first")
    return network.finish(network.linear(first, 3, "head"))


def llama() -> Graph:
    """Two blocks, a norm and a head."""
    network = Network()
    x = embedded(network)
    for name in ("a", "b"):
        x = network.llama_block(x, name)
    return network.finish(network.linear(network.root_mean_square(x, "last"), 20, "head"))


def vision(common: float = 0.0) -> Graph:
    """A stem of convolutions with a residual sum and Relu, a block, and a decoder of convolutions.

    common: what the decoder adds to its values and takes away again, which costs int8 its levels.
    """
    network = Network()
    x = network.input(1, 3, 4, 6)
    x = network.add(Relu(), network.convolved(x, 8, 3, "stem1"), name="stem.relu")
    x = network.add(Add(), x, network.convolved(x, 8, 3, "stem2"), name="stem.sum")
    patches = network.convolved(x, WIDTH, 2, "patches", 2)
    rows = network.add(Reshape((1, WIDTH, TOKENS)), patches, name="rows")
    tokens = network.add(Transpose((0, 2, 1)), rows, name="tokens")
    x = network.add(Add(), tokens, network.constant(TOKENS, WIDTH), name="positions")
    x = network.block(x, "a")
    image = network.add(Reshape((1, WIDTH, 2, 3)), network.add(Transpose((0, 2, 1)), x, name="columns"))
    x = network.add(Sigmoid(), network.convolved(image, 8, 3, "decoder1"), name="decoder.gate")
    for name, shift in (("up", common), ("down", -common)) if common else ():
        x = network.add(Add(), x, network.builder.constant(f"{name}.by", np.float32(shift)), name=name)
    return network.finish(network.convolved(x, 4, 3, "decoder2"))


def gated_convolutions() -> Graph:
    """Convolutions with a squeeze-and-excitation gate, a residual sum, and a classifier with a softmax."""
    network = Network()
    x = network.add(Swish(), network.convolved(network.input(1, 3, 8, 8), 8, 3, "stem"), name="swish")
    pooled = network.add(GlobalAveragePool(), x, name="pooled")
    gate = network.add(Sigmoid(), network.convolved(pooled, 8, 1, "excite"), name="gate")
    gated = network.add(Mul(), x, gate, name="gated")
    x = network.add(Add(), x, network.convolved(gated, 8, 1, "project"), name="sum")
    flat = network.add(Reshape((1, 8)), network.add(GlobalAveragePool(), x), name="flat")
    scores = network.add(Gemm(), flat, network.constant(8, 5), None, name="scores")
    return network.finish(network.add(Softmax(), scores, name="softmax"))


def similarity() -> Graph:
    """A softmax of products of two computed values that weighs nothing."""
    network = Network()
    x = network.input(1, TOKENS, WIDTH)
    a, b = network.linear(x, DEPTH, "a"), network.linear(x, DEPTH, "b")
    scores = network.add(MatMul(), a, network.add(Transpose((0, 2, 1)), b), name="scores")
    return network.finish(network.add(Softmax(), scores, name="softmax"))
