"""Attention whose exporter guards rows of NaN: a query that may see no key gives zeros."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.types import Array
from tests.unit.importer.tiny import save, session

TOKENS, WIDTH = 4, 6


def masked_attention(folder: Path) -> Path:
    """Write attention of one head with a mask that is added, and the guard that exporters write."""
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"]),
        helper.make_node("Where", ["mask", "scores", "nothing"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["shares"], axis=-1),
        helper.make_node("IsNaN", ["shares"], ["unknown"]),
        helper.make_node("Where", ["unknown", "zero", "shares"], ["safe"]),
        helper.make_node("MatMul", ["safe", "v"], ["y"]),
    ]
    real = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, TOKENS, WIDTH]) for n in "qkv"]
    mask = helper.make_tensor_value_info("mask", TensorProto.BOOL, [1, TOKENS, TOKENS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    numbers = [("nothing", -np.inf), ("zero", 0.0)]
    constants = [numpy_helper.from_array(np.array(number, np.float32), name) for name, number in numbers]
    graph = helper.make_graph(nodes, "attention", [*real, mask], [y], constants)
    return save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), folder)


def sample(rng: np.random.Generator) -> dict[str, Array]:
    arrays: dict[str, Array] = {n: rng.standard_normal((1, TOKENS, WIDTH)).astype(np.float32) for n in "qkv"}
    arrays["mask"] = np.tril(np.ones((1, TOKENS, TOKENS), bool))
    arrays["mask"][:, 1] = False
    return arrays


def test_a_query_without_keys_gives_zeros(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path, inputs = masked_attention(tmp_path), sample(rng)
    model = qglow.load_model(path)
    names = [node.operator.name for node in model.graph.nodes]
    assert names.count("Where") == 1 and "Compare" not in names
    (expected,) = session(path).run(None, inputs)
    with_keys = inputs["mask"][0].any(axis=-1)  # onnxruntime for Arm has no NaN for the others
    for results in (model.interpret(inputs), model.compile()(inputs)):
        np.testing.assert_allclose(results["y"][:, with_keys], expected[:, with_keys], atol=1e-5)
        assert not results["y"][:, 1].any()


def test_a_model_that_is_quantized_keeps_its_zeros(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model = qglow.load_model(masked_attention(tmp_path))
    samples = [sample(rng) for _ in range(4)]
    stacked = {name: np.concatenate([s[name] for s in samples]) for name in samples[0]}
    quantized = model.quantize(model.profile(stacked))
    exported = session(quantized.qdq_bytes())
    for inputs in samples:
        found = quantized.compile()(inputs)["y"]
        assert not found[:, 1].any() and np.isfinite(found).all()
        (again,) = exported.run(None, inputs)
        with_keys = inputs["mask"][0].any(axis=-1)
        assert again[:, with_keys] == pytest.approx(found[:, with_keys], abs=0.05)
