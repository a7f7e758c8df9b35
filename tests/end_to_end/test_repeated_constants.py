"""Constants that a model repeats for each sample, such as class tokens and learned queries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper

import qglow
from tests.end_to_end.test_dynamic_shapes import decibels
from tests.unit.importer.tiny import save, session, tiny_model

WIDTH = 16
NODES = [
    helper.make_node("Shape", ["x"], ["batch"], end=1),
    helper.make_node("Concat", ["batch", "one", "width"], ["sizes"], axis=0),
    helper.make_node("Expand", ["token", "sizes"], ["tokens"]),
    helper.make_node("ReduceMean", ["x", "one"], ["seen"]),
    helper.make_node("MatMul", ["seen", "w"], ["product"]),
    helper.make_node("Add", ["tokens", "product"], ["sum"]),
    helper.make_node("Relu", ["sum"], ["positive"]),
    helper.make_node("MatMul", ["positive", "v"], ["y"]),
]


def test_a_batch_has_the_graph_of_one_sample(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    stored = {
        "token": random.normal(size=(1, 1, WIDTH)).astype(np.float32),
        "w": random.normal(size=(WIDTH, WIDTH)).astype(np.float32),
        "v": random.normal(size=(WIDTH, 8)).astype(np.float32),
        "one": np.array([1]),
        "width": np.array([WIDTH]),
    }
    path = save(tiny_model(NODES, {"x": ["N", 6, WIDTH]}, ["y"], stored, opset=18), tmp_path)
    data = random.normal(size=(12, 6, WIDTH)).astype(np.float32)
    model = qglow.load_model(path)
    quantized = model.quantize(model.profile({"x": data[:8]}))
    expected = session(path).run(None, {"x": data[8:]})[0]
    program = quantized.compile()
    found = program({"x": data[8:]})["y"]
    assert decibels(found, expected) > 30
    one = np.concatenate([program({"x": sample[None]})["y"] for sample in data[8:]])
    np.testing.assert_array_equal(found, one)
    exported = tmp_path / "token.qdq.onnx"
    quantized.export_qdq(exported)
    assert decibels(session(exported, optimize=True).run(None, {"x": data[8:]})[0], found) > 40
