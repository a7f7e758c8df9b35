"""A Llama with drawn weights in onnxruntime's own operators, as its model builder and optimizer write it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from qglow.core.types import Array

LAYERS, WIDTH, HEADS, GROUPS, DEPTH, INNER, WORDS, LONGEST = 2, 64, 4, 2, 16, 96, 50, 128
BLOCK = 32


class _Writer:
    """Nodes and constants. bits: 4 for products by MatMulNBits, None for MatMul."""

    def __init__(self, bits: int | None, window: int) -> None:
        self._random = np.random.default_rng(7)
        self._bits, self._window = bits, window
        self.nodes: list[NodeProto] = []
        self.stored: dict[str, Array] = {}

    def node(self, operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> str:
        known = operator.startswith(("Group", "Skip", "MatMulN"))
        name = f"{operator}_{len(self.nodes)}"
        domain = "com.microsoft" if known else ""
        self.nodes.append(helper.make_node(operator, inputs, outputs, name, domain=domain, **attributes))
        return outputs[0]

    def keep(self, name: str, array: Array) -> str:
        self.stored[name] = np.ascontiguousarray(array)
        return name

    def drawn(self, name: str, *shape: int) -> str:
        array = self._random.normal(size=shape) / np.sqrt(shape[0])
        return self.keep(name, array.astype(np.float32))

    def product(self, name: str, x: str, k: int, n: int) -> str:
        if self._bits is None:
            return self.node("MatMul", [x, self.drawn(name, k, n)], [f"{name}.y"])
        packed = self._random.integers(0, 256, (n, k // BLOCK, BLOCK // 2)).astype(np.uint8)
        scales = (self._random.uniform(0.5, 1.5, n * k // BLOCK) * 0.2 / np.sqrt(k)).astype(np.float32)
        weights = [self.keep(f"{name}.q", packed), self.keep(f"{name}.s", scales)]
        form = {"K": k, "N": n, "bits": self._bits, "block_size": BLOCK}
        return self.node("MatMulNBits", [x, *weights], [f"{name}.y"], **form)

    def layer(self, index: int, x: str, skip: str) -> tuple[str, str]:
        """What a layer adds to the stream, and the stream before that."""
        norm = self.drawn(f"{index}.norm", WIDTH)
        if skip:
            outputs = [f"{index}.in", "", "", f"{index}.stream"]
            self.node("SkipSimplifiedLayerNormalization", [skip, x, norm], outputs, epsilon=1e-5)
        else:
            self.node("SimplifiedLayerNormalization", [x, norm], [f"{index}.in"], epsilon=1e-5, axis=-1)
        stream = f"{index}.stream" if skip else x
        q, k, v = (
            self.product(f"{index}.{name}", f"{index}.in", WIDTH, count * DEPTH)
            for name, count in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))
        )
        past = [f"past_key_values.{index}.{kind}" for kind in ("key", "value")]
        present = [f"present.{index}.{kind}" for kind in ("key", "value")]
        self.node(
            "GroupQueryAttention",
            [q, k, v, *past, "last", "all", "cos", "sin"],
            [f"{index}.mixed", *present],
            num_heads=HEADS,
            kv_num_heads=GROUPS,
            do_rotary=1,
            local_window_size=self._window,
        )
        rows = self.product(f"{index}.o", f"{index}.mixed", HEADS * DEPTH, WIDTH)
        outputs = [f"{index}.between", "", "", f"{index}.sum"]
        after = self.drawn(f"{index}.after", WIDTH)
        self.node("SkipSimplifiedLayerNormalization", [stream, rows, after], outputs, epsilon=1e-5)
        gate = self.product(f"{index}.gate", f"{index}.between", WIDTH, INNER)
        swish = self.node("Mul", [gate, self.node("Sigmoid", [gate], [f"{gate}.s"])], [f"{gate}.swish"])
        up = self.product(f"{index}.up", f"{index}.between", WIDTH, INNER)
        wide = self.node("Mul", [swish, up], [f"{index}.wide"])
        return self.product(f"{index}.down", wide, INNER, WIDTH), f"{index}.sum"


def fused_llama(bits: int | None = None, window: int = -1) -> onnx.ModelProto:
    """input_ids, attention_mask and the cache to logits and all keys and values; positions are counted.

    bits: 4 for weights in blocks of 32. window: how many tokens a token sees, -1 for all before it.
    """
    made = _Writer(bits, window)
    steps = 10000.0 ** (-np.arange(0, DEPTH, 2) / DEPTH)
    angles = np.outer(np.arange(LONGEST), steps)
    made.keep("cos", np.cos(angles).astype(np.float32))
    made.keep("sin", np.sin(angles).astype(np.float32))
    for name, number in (("one", np.array([1])), ("place", np.array(1))):
        made.keep(name, number)
    made.node("ReduceSum", ["attention_mask", "one"], ["counted"], keepdims=1)
    made.node("Sub", ["counted", "one"], ["before"])
    made.node("Cast", ["before"], ["last"], to=TensorProto.INT32)
    made.node("Shape", ["attention_mask"], ["sizes"])
    made.node("Gather", ["sizes", "place"], ["size"], axis=0)
    made.node("Cast", ["size"], ["all"], to=TensorProto.INT32)
    x = made.node("Gather", [made.drawn("words", WORDS, WIDTH), "input_ids"], ["embedded"])
    stream = ""
    for index in range(LAYERS):
        x, stream = made.layer(index, x, stream)
    norm = made.drawn("norm", WIDTH)
    made.node("SkipSimplifiedLayerNormalization", [stream, x, norm], ["end"], epsilon=1e-5)
    made.node("MatMul", ["end", made.drawn("head", WIDTH, WORDS)], ["logits"])
    info, real = helper.make_tensor_value_info, TensorProto.FLOAT
    layers = [(i, kind) for i in range(LAYERS) for kind in ("key", "value")]
    cache = ["batch_size", GROUPS]
    graph = helper.make_graph(
        made.nodes,
        "llama",
        [
            info("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
            info("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"]),
            *(
                info(f"past_key_values.{i}.{kind}", real, [*cache, "past_sequence_length", DEPTH])
                for i, kind in layers
            ),
        ],
        [
            info("logits", real, ["batch_size", "sequence_length", WORDS]),
            *(
                info(f"present.{i}.{kind}", real, [*cache, "total_sequence_length", DEPTH])
                for i, kind in layers
            ),
        ],
        [numpy_helper.from_array(array, name) for name, array in made.stored.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
