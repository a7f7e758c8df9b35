"""A decoder with drawn weights: causal attention over a cache of keys and values, with positions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.types import Array

WORDS, WIDTH, HEADS, LONGEST = 20, 16, 2, 64
DEPTH = WIDTH // HEADS
STATES = {"past_key": "present_key", "past_value": "present_value"}


def decoder(given: bool = False) -> onnx.ModelProto:
    """tokens [1, new], past_key and past_value [1, heads, past, depth] -> logits and present keys, values.

    Positions and the causal mask are computed from shapes, as exporters write them. given: positions and a
    mask of the tokens, [1, total], are inputs besides.
    """
    random = np.random.default_rng(3)

    def matrix(rows: int, columns: int) -> Array:
        return (random.normal(size=(rows, columns)) / np.sqrt(rows)).astype(np.float32)

    constants = {
        "words": 2 * matrix(WORDS, WIDTH),
        "places": matrix(LONGEST, WIDTH),
        "head": matrix(WIDTH, WORDS),
        **{name: matrix(WIDTH, WIDTH) for name in ("wq", "wk", "wv", "wo")},
        "heads": np.array([1, -1, HEADS, DEPTH]),
        "flat": np.array([1, -1, WIDTH]),
        "causal": np.tril(np.ones((LONGEST, LONGEST), np.bool_)),
        "sharpness": np.array(DEPTH**-0.5, np.float32),
        "low": np.array(-1e4, np.float32),
        "zero": np.array(0),
        "one": np.array(1),
        "one_list": np.array([1]),
        "zero_list": np.array([0]),
    }
    node = helper.make_node
    nodes = [
        node("Shape", ["tokens"], ["new"], start=1, end=2),
        node("Shape", ["past_key"], ["past"], start=2, end=3),
        node("Add", ["past", "new"], ["total"]),
        node("Squeeze", ["past"], ["first"]),
        node("Squeeze", ["total"], ["last"]),
        node("Range", ["first", "last", "one"], ["positions"]),
        node("Gather", ["places", "position_ids" if given else "positions"], ["placed"]),
        node("Gather", ["words", "tokens"], ["embedded"]),
        node("Add", ["embedded", "placed"], ["x"]),
        node("Slice", ["causal", "past", "total", "zero_list"], ["mask_rows"]),
        node("Slice", ["mask_rows", "zero_list", "total", "one_list"], ["mask"]),
    ]
    if given:
        nodes += [
            node("Cast", ["attention_mask"], ["known"], to=TensorProto.BOOL),
            node("And", ["mask", "known"], ["seen_mask"]),
        ]
    for name in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{name}"], [f"{name}_rows"]),
            node("Reshape", [f"{name}_rows", "heads"], [f"{name}_split"]),
            node("Transpose", [f"{name}_split"], [f"{name}_new"], perm=[0, 2, 1, 3]),
        ]
    nodes += [
        node("Concat", ["past_key", "k_new"], ["present_key"], axis=2),
        node("Concat", ["past_value", "v_new"], ["present_value"], axis=2),
        node("Transpose", ["present_key"], ["keys"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q_new", "keys"], ["scores"]),
        node("Mul", ["scores", "sharpness"], ["scaled"]),
        node("Where", ["seen_mask" if given else "mask", "scaled", "low"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "present_value"], ["seen"]),
        node("Transpose", ["seen"], ["seen_rows"], perm=[0, 2, 1, 3]),
        node("Reshape", ["seen_rows", "flat"], ["seen_flat"]),
        node("MatMul", ["seen_flat", "wo"], ["mixed"]),
        node("Add", ["mixed", "x"], ["y"]),
        node("MatMul", ["y", "head"], ["logits"]),
    ]
    sizes = {"attention_mask": [1, "total"], "position_ids": [1, "new"]} if given else {}
    cache = [1, HEADS, "past", DEPTH]
    real = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, "new"]),
            *(helper.make_tensor_value_info(name, TensorProto.INT64, size) for name, size in sizes.items()),
            *(helper.make_tensor_value_info(name, real, cache) for name in STATES),
        ],
        [helper.make_tensor_value_info(name, real, None) for name in ("logits", *STATES.values())],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def tokens(count: int, seed: int = 0) -> Array:
    """Drawn tokens [1, count]."""
    return np.random.default_rng(seed).integers(0, WORDS, size=(1, count))


def without_past(drawn: Array) -> Mapping[str, Array]:
    """Inputs of a sequence from its beginning."""
    empty = np.zeros((1, HEADS, 0, DEPTH), np.float32)
    return {"tokens": drawn, **dict.fromkeys(STATES, empty)}


def piecewise(program: qglow.StreamingExecutable, drawn: Array, pieces: tuple[int, ...]) -> Array:
    """Logits of all tokens [1, sum of pieces, words], read so many at a time by a program with states."""
    begin, logits = 0, []
    for piece in pieces:
        logits.append(program({"tokens": drawn[:, begin : begin + piece]})["logits"])
        begin += piece
    return np.concatenate(logits, 1)
