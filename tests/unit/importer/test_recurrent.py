"""Outputs of recurrent operators that are last states, lengths that the model is given, and their bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from qglow.graph.interpreter import Interpreter
from qglow.importer import import_model
from tests.unit.importer.recurrent_cases import HIDDEN, INPUT, LENGTHS, weights
from tests.unit.importer.tiny import assert_as_onnxruntime, save, tiny_model


@pytest.mark.parametrize("outputs", [("", "h1"), ("", "", "c1"), ("y", "h1", "c1")])
def test_last_states_are_outputs(outputs: tuple[str, ...], tmp_path: Path) -> None:
    known = {name: weights("LSTM", 2)[name] for name in "wrb"}
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b"], outputs, hidden_size=HIDDEN, direction="bidirectional"
    )
    path = save(tiny_model([node], INPUT, [o for o in outputs if o], known, opset=14), tmp_path)
    assert_as_onnxruntime(import_model(path).graph, path)


def test_lengths_may_be_an_input(tmp_path: Path) -> None:
    known = {name: weights("GRU")[name] for name in "wrb"}
    node = helper.make_node("GRU", ["x", "w", "r", "b", "n"], ["y", "h1"], hidden_size=HIDDEN)
    model = tiny_model([node], INPUT, ["y", "h1"], known, opset=14)
    model.graph.input.append(helper.make_tensor_value_info("n", TensorProto.INT32, LENGTHS.shape))
    path = save(model, tmp_path)
    x = np.random.default_rng(3).normal(size=INPUT["x"]).astype(np.float32)
    feeds = {"x": x, "n": LENGTHS}
    found = Interpreter(import_model(path).graph).run(feeds)
    expected = onnxruntime.InferenceSession(str(path)).run(["y", "h1"], feeds)
    for name, value in zip(("y", "h1"), expected, strict=True):
        assert np.allclose(found[name], value, atol=1e-5)
