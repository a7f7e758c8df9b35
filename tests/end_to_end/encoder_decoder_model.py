"""An encoder and a decoder with drawn weights, in the three forms that exporters write of a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import qglow
from qglow.core.types import Array
from tests.end_to_end.decoder_model import STATES, decoder
from tests.end_to_end.decoder_model import WORDS as DECODER_WORDS
from tests.unit.importer.tiny import save

WORDS, WIDTH, HEADS, LONGEST = 20, 16, 2, 64
DEPTH = WIDTH // HEADS
OWN = ("past_key_values.0.decoder.key", "past_key_values.0.decoder.value")
CROSS = ("past_key_values.0.encoder.key", "past_key_values.0.encoder.value")
ONE = "one/decoder_with_past_model"
FORMS = ["decoder_model_merged", "decoder_with_past_model", ONE]
SIZES: Any = {"context": 32, "source": 24, "threads": 1}
_CACHE, _OF_SOURCE = [1, HEADS, "past", DEPTH], [1, HEADS, "places", DEPTH]
_node = helper.make_node


def encoder() -> onnx.ModelProto:
    """input_ids, attention_mask [1, length] -> last_hidden_state [1, length, width]."""
    nodes = [
        _node("Gather", ["words", "input_ids"], ["x"]),
        *_projections("x", "e"),
        _node("Cast", ["attention_mask"], ["known"], to=TensorProto.BOOL),
        _node("Unsqueeze", ["known", "head_axes"], ["seen"]),
        *_attention("e_q", "e_k", "e_v", "x", "last_hidden_state", "e", mask="seen"),
    ]
    inputs = [_value(name, [1, "length"], TensorProto.INT64) for name in ("input_ids", "attention_mask")]
    return _model(nodes, inputs, [_value("last_hidden_state", [1, "length", WIDTH])])


def decoder_model() -> onnx.ModelProto:
    """The form without a cache, which gives keys and values of its tokens and of the encoder's places."""
    inputs = [*_given(), _value("encoder_hidden_states", [1, "places", WIDTH])]
    return _model(_first_nodes(), inputs, _results(True))


def decoder_with_past_model(new: int | str = "new") -> onnx.ModelProto:
    """The form for further tokens, which reads keys and values; some exporters fix one token a call."""
    return _model(_next_nodes(), [*_given(new), *_past()], _results(False))


def decoder_model_merged() -> onnx.ModelProto:
    """Both forms as branches of one If."""
    results = _results(True)
    first = helper.make_graph(_first_nodes(), "first", [], results)
    kept = [_node("Identity", [past], [present]) for past, present in zip(CROSS, _PRESENT[2:], strict=True)]
    following = helper.make_graph([*_next_nodes(), *kept], "next", [], results)
    names = [value.name for value in results]
    choice = _node("If", ["use_cache_branch"], names, "forms", then_branch=following, else_branch=first)
    inputs = [*_given(), _value("encoder_hidden_states", [1, "places", WIDTH]), *_past()]
    inputs.append(_value("use_cache_branch", [1], TensorProto.BOOL))
    return _model([choice], inputs, results)


def source(length: int, seed: int = 0) -> dict[str, Array]:
    """Inputs of the encoder."""
    tokens = np.random.default_rng(seed).integers(0, WORDS, size=(1, length))
    return {"input_ids": tokens, "attention_mask": np.ones((1, length), np.int64)}


def merged_alone() -> onnx.ModelProto:
    """A decoder of no source beside a form without a cache, which gives its inputs here."""
    plain = decoder()
    graph, outputs = plain.graph, list(plain.graph.output)
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    zeros = numpy_helper.from_array(np.zeros((1, 1, DECODER_WORDS), np.float32), "zeros")
    given = zip(("zeros", *STATES), outputs, strict=True)
    without = [helper.make_node("Identity", [name], [output.name]) for name, output in given]
    branches = {
        "then_branch": helper.make_graph(list(graph.node), "cache", [], outputs),
        "else_branch": helper.make_graph(without, "no_cache", [], outputs),
    }
    choice = helper.make_node("If", [flag.name], [value.name for value in outputs], **branches)
    tensors = [*graph.initializer, zeros]
    merged = helper.make_graph([choice], "merged", [*graph.input, flag], outputs, tensors)
    return helper.make_model(merged, opset_imports=plain.opset_import, ir_version=8)


def export(path: Path) -> Path:
    """Fill a folder as exporters write it, with one whose decoder with a cache has one token a call."""
    forms = (decoder_model, decoder_with_past_model, decoder_model_merged)
    for form in forms:
        save(form(), path, f"{form.__name__}.onnx")
    save(encoder(), path, "encoder_model.onnx")
    (path / "one").mkdir()
    save(decoder_with_past_model(1), path, f"{ONE}.onnx")
    save(decoder_model(), path, "one/decoder_model.onnx")
    return path


def load(folder: Path, form: str, **options: Any) -> qglow.Generator:
    """A form of the decoder with its encoder."""
    has_past = form.endswith("decoder_with_past_model")
    first = qglow.load_model(folder / "decoder_model.onnx") if has_past else None
    reads = qglow.load_model(folder / "encoder_model.onnx")
    model = qglow.load_model(folder / f"{form}.onnx")
    return qglow.load_generator(model, encoder=reads, first=first, **{**SIZES, **options})


_PRESENT = [name.replace("past_key_values", "present") for name in (*OWN, *CROSS)]


def _given(new: int | str = "new") -> list[ValueInfoProto]:
    return [
        _value("encoder_attention_mask", [1, "places"], TensorProto.INT64),
        _value("input_ids", [1, new], TensorProto.INT64),
    ]


def _past() -> list[ValueInfoProto]:
    return [*(_value(name, _CACHE) for name in OWN), *(_value(name, _OF_SOURCE) for name in CROSS)]


def _results(with_cross: bool) -> list[ValueInfoProto]:
    own = [_value(name, None) for name in _PRESENT[:2]]
    return [_value("logits", None), *own, *(_value(n, None) for n in _PRESENT[2:] if with_cross)]


def _first_nodes() -> list[NodeProto]:
    return [
        _node("Shape", ["input_ids"], ["total"], start=1, end=2),
        *_embedded("zero_list"),
        *_projections("x", "d"),
        *(_node("Identity", [f"d_{part}"], [name]) for part, name in zip("kv", _PRESENT[:2], strict=True)),
        *_attention("d_q", "d_k", "d_v", "x", "y", "d", mask="causal_mask"),
        *(
            node
            for part, name in zip("kv", _PRESENT[2:], strict=True)
            for node in _split("encoder_hidden_states", f"c_w{part}", name)
        ),
        *_decoded(*_PRESENT[2:]),
    ]


def _next_nodes() -> list[NodeProto]:
    return [
        _node("Shape", ["input_ids"], ["new"], start=1, end=2),
        _node("Shape", [OWN[0]], ["begin"], start=2, end=3),
        _node("Add", ["begin", "new"], ["total"]),
        *_embedded("begin"),
        *_projections("x", "d"),
        *(
            _node("Concat", [past, f"d_{part}"], [present], axis=2)
            for part, past, present in zip("kv", OWN, _PRESENT[:2], strict=True)
        ),
        *_attention("d_q", *_PRESENT[:2], "x", "y", "d", mask="causal_mask"),
        *_decoded(*CROSS),
    ]


def _embedded(begin: str) -> list[NodeProto]:
    """Words at their positions, and what each may see."""
    return [
        _node("Squeeze", [begin], ["low_end"]),
        _node("Squeeze", ["total"], ["high_end"]),
        _node("Range", ["low_end", "high_end", "one"], ["positions"]),
        _node("Gather", ["places", "positions"], ["placed"]),
        _node("Gather", ["words", "input_ids"], ["embedded"]),
        _node("Add", ["embedded", "placed"], ["x"]),
        _node("Slice", ["causal", begin, "total", "zero_list"], ["causal_rows"]),
        _node("Slice", ["causal_rows", "zero_list", "total", "one_list"], ["causal_mask"]),
    ]


def _decoded(keys: str, values: str) -> list[NodeProto]:
    """Attention to the source's places, and the scores of words."""
    return [
        *_split("y", "c_wq", "c_q"),
        _node("Cast", ["encoder_attention_mask"], ["known"], to=TensorProto.BOOL),
        _node("Unsqueeze", ["known", "head_axes"], ["places_mask"]),
        *_attention("c_q", keys, values, "y", "z", "c", mask="places_mask"),
        _node("MatMul", ["z", "head"], ["logits"]),
    ]


def _projections(x: str, name: str) -> list[NodeProto]:
    return [node for part in "qkv" for node in _split(x, f"{name}_w{part}", f"{name}_{part}")]


def _split(x: str, weight: str, result: str) -> list[NodeProto]:
    """A product whose columns are cut into heads."""
    return [
        _node("MatMul", [x, weight], [f"{result}_rows"]),
        _node("Reshape", [f"{result}_rows", "heads"], [f"{result}_split"]),
        _node("Transpose", [f"{result}_split"], [result], perm=[0, 2, 1, 3]),
    ]


def _attention(
    query: str, keys: str, values: str, beside: str, result: str, name: str, mask: str
) -> list[NodeProto]:
    """Attention, its output projection, and the sum with what goes beside it."""
    return [
        _node("Transpose", [keys], [f"{name}_turned"], perm=[0, 1, 3, 2]),
        _node("MatMul", [query, f"{name}_turned"], [f"{name}_scores"]),
        _node("Mul", [f"{name}_scores", "sharpness"], [f"{name}_scaled"]),
        _node("Where", [mask, f"{name}_scaled", "low"], [f"{name}_masked"]),
        _node("Softmax", [f"{name}_masked"], [f"{name}_shares"], axis=-1),
        _node("MatMul", [f"{name}_shares", values], [f"{name}_seen"]),
        _node("Transpose", [f"{name}_seen"], [f"{name}_seen_rows"], perm=[0, 2, 1, 3]),
        _node("Reshape", [f"{name}_seen_rows", "flat"], [f"{name}_flat"]),
        _node("MatMul", [f"{name}_flat", f"{name}_wo"], [f"{name}_mixed"]),
        _node("Add", [f"{name}_mixed", beside], [result]),
    ]


def _constants() -> dict[str, Array]:
    random = np.random.default_rng(3)

    def matrix(rows: int, columns: int) -> Array:
        return (random.normal(size=(rows, columns)) / np.sqrt(rows)).astype(np.float32)

    return {
        "words": 2 * matrix(WORDS, WIDTH),
        "places": matrix(LONGEST, WIDTH),
        "head": 3 * matrix(WIDTH, WORDS),
        **{f"{name}_w{part}": 2 * matrix(WIDTH, WIDTH) for name in "edc" for part in "qkvo"},
        "heads": np.array([1, -1, HEADS, DEPTH]),
        "flat": np.array([1, -1, WIDTH]),
        "causal": np.tril(np.ones((LONGEST, LONGEST), np.bool_)),
        "sharpness": np.array(DEPTH**-0.5, np.float32),
        "low": np.array(-1e4, np.float32),
        "one": np.array(1),
        "one_list": np.array([1]),
        "zero_list": np.array([0]),
        "head_axes": np.array([1, 2]),
    }


def _value(name: str, sizes: Sequence[int | str] | None, kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, sizes)


def _model(
    nodes: list[NodeProto], inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]
) -> onnx.ModelProto:
    read = {name for node in nodes for name in _names(node)}
    tensors = [numpy_helper.from_array(a, name) for name, a in _constants().items() if name in read]
    graph = helper.make_graph(nodes, "model", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _names(node: NodeProto) -> list[str]:
    inner = [name for a in node.attribute if a.HasField("g") for one in a.g.node for name in _names(one)]
    return [*node.input, *inner]
