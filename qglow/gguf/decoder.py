"""The graph of a decoder with its cache as inputs and outputs, from weights and settings of a GGUF file.

Nodes are those of an exporter: RMSNorm and rotary embedding in their parts, the causal mask from positions,
keys and values of past tokens as `past_key_values.0.key`, those of all tokens as `present.0.key`. Batch,
tokens and past are free. Rows of queries and keys are put in the order in which elements that turn together
lie in both halves of a head, whichever order the file has; scores of attention are the same.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from qglow.core.types import Array, Shape
from qglow.gguf.nodes import CONTRIBUTED, NodeWriter
from qglow.gguf.settings import DecoderSettings
from qglow.gguf.weights import DecoderWeights

OPSET = 17
HEAD, TABLE, FACTORS = "output.weight", "token_embd.weight", "rope_freqs.weight"


class DecoderGraph:
    """The nodes of one decoder."""

    def __init__(self, settings: DecoderSettings, weights: DecoderWeights, out: NodeWriter) -> None:
        self._settings = settings
        self._weights = weights
        self._out = out
        self._words = weights.extents(TABLE)[0]

    def model(self) -> ModelProto:
        """Tokens, mask, positions and past keys and values to logits and all keys and values."""
        settings, weights = self._settings, self._weights
        table = (self._words, settings.width)
        x = weights.table(TABLE, table, "input_ids")
        positions = self._out.node("Unsqueeze", "position_ids", self._out.integers(-1))
        angles, seen = self._angles(positions), self._seen(positions)
        for layer in range(settings.layers):
            own = f"blk.{layer}."
            before = self._norm(x, f"{own}attn_norm.weight", settings.width)
            x = self._out.node("Add", x, self._attention(layer, before, angles, seen))
            between = self._norm(x, f"{own}ffn_norm.weight", settings.width)
            x = self._out.node("Add", x, self._feed_forward(own, between))
        last = self._norm(x, "output_norm.weight", settings.width)
        head = HEAD if weights.has(HEAD) else TABLE
        weights.product(head, table, last, result="logits")
        return self._whole()

    def _whole(self) -> ModelProto:
        settings, info = self._settings, helper.make_tensor_value_info
        axes = {"input_ids": "new", "attention_mask": "total", "position_ids": "new"}
        states = [f"{layer}.{kind}" for layer in range(settings.layers) for kind in ("key", "value")]

        def state(name: str, length: str) -> ValueInfoProto:
            shape: list[int | str | None] = ["batch", settings.groups, length, settings.depth]
            return info(name, TensorProto.FLOAT, shape)

        graph = helper.make_graph(
            self._out.nodes,
            settings.architecture,
            [info(name, TensorProto.INT64, ["batch", axis]) for name, axis in axes.items()]
            + [state(f"past_key_values.{name}", "past") for name in states],
            [info("logits", TensorProto.FLOAT, ["batch", "new", self._words])]
            + [state(f"present.{name}", "total") for name in states],
            self._out.constants,
        )
        sets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIBUTED, 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=8)

    def _angles(self, positions: str) -> tuple[str, str]:
        """Cosines and sines [batch, 1, new, depth] of the rotary embedding."""
        settings, out = self._settings, self._out
        depth = settings.depth
        steps = settings.base ** (-np.arange(0, depth, 2, dtype=np.float64) / depth) / settings.slower
        if self._weights.has(FACTORS):
            steps = steps / self._weights.vector(FACTORS, depth // 2).astype(np.float64)
        real = out.node("Cast", positions, to=TensorProto.FLOAT)
        turned = out.node("Mul", real, out.constant(steps.astype(np.float32)))
        both, one = out.node("Concat", turned, turned, axis=-1), out.integers(1)
        cosines, sines = (out.node("Unsqueeze", out.node(kind, both), one) for kind in ("Cos", "Sin"))
        return cosines, sines

    def _seen(self, positions: str) -> str:
        """0 where a token sees another one, else the least float, [batch, 1, new, total]."""
        out = self._out
        total = out.node("Gather", out.node("Shape", "attention_mask"), out.number(1))
        others = out.node("Range", out.number(0), total, out.number(1))
        before = out.node("LessOrEqual", others, positions)
        known = out.node("Cast", "attention_mask", to=TensorProto.BOOL)
        both = out.node("And", before, out.node("Unsqueeze", known, out.integers(1)))
        least = out.constant(np.float32(np.finfo(np.float32).min))
        return out.node(
            "Unsqueeze", out.node("Where", both, out.constant(np.float32(0)), least), out.integers(1)
        )

    def _attention(self, layer: int, x: str, angles: tuple[str, str], seen: str) -> str:
        settings, out, own = self._settings, self._out, f"blk.{layer}."
        queries = self._rotated(self._heads(f"{own}attn_q", x, settings.heads), angles)
        keys = self._rotated(self._heads(f"{own}attn_k", x, settings.groups), angles)
        values = self._heads(f"{own}attn_v", x, settings.groups)
        past = f"past_key_values.{layer}"
        keys = out.node("Concat", f"{past}.key", keys, axis=2, result=f"present.{layer}.key")
        values = out.node("Concat", f"{past}.value", values, axis=2, result=f"present.{layer}.value")
        across = out.node("Transpose", self._shared(keys), perm=[0, 1, 3, 2])
        sharpness = out.constant(np.float32(settings.depth**-0.5))
        scores = out.node("Mul", out.node("MatMul", queries, across), sharpness)
        shares = out.node("Softmax", out.node("Add", scores, seen), axis=-1)
        mixed = out.node("MatMul", shares, self._shared(values))
        rows = out.node("Transpose", mixed, perm=[0, 2, 1, 3])
        inner = settings.heads * settings.depth
        flat = out.node("Reshape", rows, out.integers(0, -1, inner))
        return self._linear(f"{own}attn_output", (settings.width, inner), flat)

    def _heads(self, name: str, x: str, heads: int) -> str:
        """A product as heads, [batch, heads, new, depth], with a norm of each where the file has one."""
        depth, out = self._settings.depth, self._out
        turned = self._settings.paired and not name.endswith("v")
        order = _halves(heads, depth) if turned else None
        rows = self._linear(name, (heads * depth, self._settings.width), x, order)
        split = out.node("Reshape", rows, out.integers(0, -1, heads, depth))
        if self._weights.has(f"{name}_norm.weight"):
            split = self._norm(split, f"{name}_norm.weight", depth)
        return out.node("Transpose", split, perm=[0, 2, 1, 3])

    def _linear(self, name: str, shape: Shape, x: str, order: Array | None = None) -> str:
        """A product, and a bias where the file has one."""
        result = self._weights.product(f"{name}.weight", shape, x, order)
        if not self._weights.has(f"{name}.bias"):
            return result
        bias = self._weights.vector(f"{name}.bias", shape[0])
        stored = self._out.constant(bias if order is None else bias[order], f"{name}.bias")
        return self._out.node("Add", result, stored)

    def _rotated(self, x: str, angles: tuple[str, str]) -> str:
        out, depth = self._out, self._settings.depth
        half, axis = out.integers(depth // 2), out.integers(3)
        first = out.node("Slice", x, out.integers(0), half, axis)
        second = out.node("Slice", x, half, out.integers(depth), axis)
        turned = out.node("Concat", out.node("Neg", second), first, axis=-1)
        return out.node("Add", out.node("Mul", x, angles[0]), out.node("Mul", turned, angles[1]))

    def _shared(self, x: str) -> str:
        """Keys or values, for each of the heads that share them."""
        settings, out = self._settings, self._out
        times = settings.heads // settings.groups
        if times == 1:
            return x
        many = out.node("Unsqueeze", x, out.integers(2))
        many = out.node("Expand", many, out.integers(1, 1, times, 1, 1))
        return out.node("Reshape", many, out.integers(0, settings.heads, -1, settings.depth))

    def _feed_forward(self, own: str, x: str) -> str:
        out, wide = self._out, (self._settings.inner, self._settings.width)
        gate = self._linear(f"{own}ffn_gate", wide, x)
        swish = out.node("Mul", gate, out.node("Sigmoid", gate))
        up = self._linear(f"{own}ffn_up", wide, x)
        return self._linear(f"{own}ffn_down", wide[::-1], out.node("Mul", swish, up))

    def _norm(self, x: str, name: str, width: int) -> str:
        """Root mean square normalization."""
        out = self._out
        squares = out.node("Pow", x, out.constant(np.float32(2.0), "two"))
        mean = out.node("ReduceMean", squares, axes=[-1], keepdims=1)
        epsilon = out.constant(np.float32(self._settings.epsilon), "epsilon")
        root = out.node("Sqrt", out.node("Add", mean, epsilon))
        scaled = out.node("Mul", x, out.node("Reciprocal", root))
        return out.node("Mul", scaled, out.constant(self._weights.vector(name, width), name))


def _halves(heads: int, depth: int) -> Array:
    """Rows of heads whose neighbours turn together, in the order of heads whose halves do."""
    rows = np.arange(heads * depth).reshape(heads, depth // 2, 2)
    return rows.transpose(0, 2, 1).reshape(-1)
