"""Recurrent models end to end: a classifier of sequences, and a model that takes and gives its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import qglow
from qglow.core.types import Array
from tests.unit.importer.tiny import session

STEPS, INPUTS, WIDTH, CLASSES = 96, 12, 32, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def classifier(operator: str, path: Path) -> Path:
    """A bidirectional layer, whose last states a Gemm classifies. Sequences are [N, T, I]."""
    rng = np.random.default_rng(7)
    rows = GATES[operator] * WIDTH

    def weights(*shape: int) -> Array:
        return (rng.normal(size=shape) * shape[-1] ** -0.5).astype(np.float32)

    constants = {
        "w": weights(2, rows, INPUTS),
        "r": weights(2, rows, WIDTH),
        "b": weights(2, 2 * rows),
        "v": weights(2 * WIDTH, CLASSES),
        "a": weights(CLASSES),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        helper.make_node(
            operator,
            ["steps", "w", "r", "b"],
            ["all", "last"],
            hidden_size=WIDTH,
            direction="bidirectional",
        ),
        helper.make_node("Transpose", ["last"], ["states"], perm=[1, 0, 2]),
        helper.make_node("Flatten", ["states"], ["flat"]),
        helper.make_node("Gemm", ["flat", "v", "a"], ["scores"]),
    ]
    return write(nodes, {"x": ["n", STEPS, INPUTS]}, {"scores": ["n", CLASSES]}, constants, path)


def write(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[Any]],
    outputs: dict[str, list[Any]],
    constants: dict[str, Array],
    path: Path,
) -> Path:
    graph = helper.make_graph(
        nodes,
        "recurrent",
        *(
            [
                helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
                for name, shape in group.items()
            ]
            for group in (inputs, outputs)
        ),
        [numpy_helper.from_array(data, name) for name, data in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), path)
    return path


@pytest.mark.parametrize("operator", GATES)
def test_a_classifier_of_long_sequences_is_int8_and_accurate(operator: str, tmp_path: Path) -> None:
    model = qglow.load_model(classifier(operator, tmp_path / "model.onnx"), native=True)
    rng = np.random.default_rng(1)
    data = rng.normal(size=(48, STEPS, INPUTS)).astype(np.float32)
    quantized = model.quantize(model.profile({"x": data[:32]}))
    layers = [node for node in quantized.graph.nodes if node.operator.recurs is not None]
    assert len(layers) == 2 and all(node.output.type.is_quantized for node in layers)
    assert all(node.name in {entry.name for entry in quantized.report.quantized} for node in layers)
    executable = quantized.compile()
    wanted, found = [], []
    for sample in data[32:]:
        feeds = {"x": sample[None]}
        wanted.append(model.interpret(feeds)["scores"])
        found.append(executable(feeds)["scores"])
        assert np.array_equal(found[-1], quantized.interpret(feeds)["scores"])
    noise = np.mean((np.array(found) - wanted) ** 2)
    assert 10.0 * np.log10(np.mean(np.square(wanted)) / noise) >= 25.0
    labels, answers = (np.argmax(scores, axis=-1) for scores in (np.array(wanted), np.array(found)))
    assert np.mean(labels == answers) >= 0.9


@pytest.mark.parametrize("operator", GATES)
def test_onnxruntime_runs_an_exported_layer_for_any_batch(operator: str, tmp_path: Path) -> None:
    """First states are zeros, repeated for as many sequences as a call has."""
    model = qglow.load_model(classifier(operator, tmp_path / "model.onnx"))
    data = np.random.default_rng(1).normal(size=(16, STEPS, INPUTS)).astype(np.float32)
    quantized = model.quantize(model.profile({"x": data[:12]}), repair=False)
    quantized.export_qdq(tmp_path / "qdq.onnx")
    exported = session(tmp_path / "qdq.onnx", optimize=True)
    wanted, found = model.compile()({"x": data[12:]})["scores"], exported.run(None, {"x": data[12:]})[0]
    noise = np.mean((found - wanted) ** 2)
    assert 10.0 * np.log10(np.mean(np.square(wanted)) / noise) >= 25.0


def test_a_layer_may_be_kept_float(tmp_path: Path) -> None:
    model = qglow.load_model(classifier("LSTM", tmp_path / "model.onnx"))
    data = np.random.default_rng(1).normal(size=(4, STEPS, INPUTS)).astype(np.float32)
    quantized = model.quantize(model.profile({"x": data}), keep_float="op:Recurrence", repair=False)
    layers = [node for node in quantized.graph.nodes if node.operator.recurs is not None]
    assert len(layers) == 2 and not any(node.output.type.is_quantized for node in layers)


def streaming(path: Path, steps: int) -> Path:
    """An LSTM that takes and gives its states."""
    rng = np.random.default_rng(3)
    constants = {
        "w": rng.normal(size=(1, 4 * WIDTH, INPUTS)).astype(np.float32) * np.float32(0.3),
        "r": rng.normal(size=(1, 4 * WIDTH, WIDTH)).astype(np.float32) * np.float32(0.2),
    }
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["y", "h1", "c1"], hidden_size=WIDTH)
    states = {"h": [1, 1, WIDTH], "c": [1, 1, WIDTH]}
    outputs = {"y": [steps, 1, 1, WIDTH], "h1": [1, 1, WIDTH], "c1": [1, 1, WIDTH]}
    return write([node], {"x": [steps, 1, INPUTS]} | states, outputs, constants, path)


def test_int8_states_pass_from_call_to_call_without_loss(tmp_path: Path) -> None:
    """A call with two steps gives what two calls of one step give: bits of an int8 state are kept."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(24, 2, 1, INPUTS)).astype(np.float32)
    zeros = np.zeros((1, 1, WIDTH), np.float32)
    model = qglow.load_model(streaming(tmp_path / "two.onnx", 2))
    states = [{"h": zeros, "c": zeros}]
    for sample in x[:-1]:
        after = model.interpret({"x": sample, **states[-1]})
        states.append({"h": after["h1"], "c": after["c1"]})
    data = {"x": x, **{name: np.concatenate([state[name] for state in states]) for name in "hc"}}
    quantized = model.quantize(model.profile(data), repair=False)
    executable = quantized.compile()
    state, noise, signal = {"h": zeros, "c": zeros}, 0.0, 0.0
    for sample, exact in zip(x, states, strict=True):
        found = executable({"x": sample, **state})
        assert np.array_equal(found["h1"][0], found["y"][-1, 0])
        state = {"h": found["h1"], "c": found["c1"]}
        wanted = model.interpret({"x": sample, **exact})["y"]
        noise += float(np.sum((found["y"] - wanted) ** 2))
        signal += float(np.sum(wanted**2))
    assert 10.0 * np.log10(signal / noise) >= 25.0


def test_a_saved_program_and_more_threads_give_the_same_bits(tmp_path: Path) -> None:
    """Nine sequences at once: two whole blocks of four, shared by threads, and one left over."""
    path = classifier("GRU", tmp_path / "model.onnx")
    data = np.random.default_rng(2).normal(size=(9, STEPS, INPUTS)).astype(np.float32)
    model = qglow.load_model(path, shapes={"x": data.shape})
    quantized = model.quantize(model.profile({"x": data}), repair=False)
    expected = quantized.interpret({"x": data})["scores"]
    quantized.save(tmp_path / "saved")
    for executable in (quantized.compile(threads=2), qglow.load(tmp_path / "saved" / "model.qglow")):
        assert np.array_equal(executable({"x": data})["scores"], expected)
