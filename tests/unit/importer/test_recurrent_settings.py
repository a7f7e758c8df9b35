"""Recurrent operators with random settings: the float graph gives what onnxruntime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from qglow.core.errors import UnsupportedError
from qglow.graph.interpreter import Interpreter
from qglow.importer import import_model
from tests.unit.importer.tiny import save, session, tiny_model

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
NUMBERS = {
    "Affine": 2,
    "Elu": 1,
    "HardSigmoid": 2,
    "LeakyRelu": 1,
    "Relu": 0,
    "ScaledTanh": 2,
    "Sigmoid": 0,
    "Softplus": 0,
    "Softsign": 0,
    "Tanh": 0,
    "ThresholdedRelu": 1,
}


@st.composite
def layers(draw: st.DrawFn) -> dict[str, Any]:
    """Settings, sizes and the optional operands of one recurrent operator, with layout 0."""
    operator = draw(st.sampled_from(sorted(GATES)))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions = 2 if direction == "bidirectional" else 1
    attributes: dict[str, Any] = {"direction": direction}
    if draw(st.booleans()):
        count = FUNCTIONS[operator] * directions
        names = draw(st.lists(st.sampled_from(sorted(NUMBERS)), min_size=count, max_size=count))
        attributes["activations"] = names
        for index, which in enumerate(("alpha", "beta")):
            numbers = [0.25 + 0.1 * place for place, name in enumerate(names) if NUMBERS[name] > index]
            if numbers:
                attributes[f"activation_{which}"] = numbers
    if draw(st.booleans()):
        attributes["clip"] = draw(st.sampled_from([0.25, 1.0]))
    if operator == "LSTM":
        attributes["input_forget"] = draw(st.integers(0, 1))
    if operator == "GRU":
        attributes["linear_before_reset"] = draw(st.integers(0, 1))
    operands = draw(st.sets(st.sampled_from("bnhcp" if operator == "LSTM" else "bnh")))
    sizes = tuple(draw(st.integers(1, most)) for most in (5, 3, 4, 6))
    return {
        "operator": operator,
        "directions": directions,
        "attributes": attributes,
        "operands": operands,
        "sizes": sizes,
        "seed": draw(st.integers(0, 1000)),
    }


@settings(max_examples=60, deadline=None)
@given(layer=layers())
def test_any_settings_give_what_onnxruntime_gives(
    layer: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    random, operator, directions = (
        np.random.default_rng(layer["seed"]),
        layer["operator"],
        layer["directions"],
    )
    steps, batch, inputs, width = layer["sizes"]
    rows = GATES[operator] * width

    def real(*shape: int) -> Any:
        return random.normal(size=shape).astype(np.float32)

    constants = {"w": real(directions, rows, inputs), "r": real(directions, rows, width) / np.float32(width)}
    optional = {
        "b": real(directions, 2 * rows),
        "n": random.integers(1, steps + 1, batch).astype(np.int32),
        "h": real(directions, batch, width),
        "c": real(directions, batch, width),
        "p": real(directions, 3 * width),
    }
    constants |= {name: optional[name] for name in layer["operands"]}
    names = ["x", "w", "r", *(name if name in layer["operands"] else "" for name in "bnhcp")]
    while not names[-1]:
        names.pop()
    outputs = ["y", "h1", "c1"] if operator == "LSTM" else ["y", "h1"]
    node = helper.make_node(operator, names, outputs, hidden_size=width, **layer["attributes"])
    model = tiny_model([node], {"x": (steps, batch, inputs)}, outputs, constants, opset=14)
    path = save(model, tmp_path_factory.mktemp("recurrent"))
    feeds = {"x": real(steps, batch, inputs)}
    expected = session(model).run(outputs, feeds)
    graph = import_model(path, native=True).graph
    found = Interpreter(graph).run(feeds)
    for name, wanted in zip(outputs, expected, strict=True):
        assert np.allclose(found[name], wanted, atol=1e-4, rtol=1e-4), name


@pytest.mark.parametrize("operator", sorted(GATES))
def test_batch_first_is_the_same_with_other_axes(operator: str, tmp_path: Path) -> None:
    """onnxruntime refuses layout 1, so the model with layout 0 is the reference."""
    random, steps, batch, inputs, width = np.random.default_rng(2), 4, 3, 5, 6
    rows = GATES[operator] * width
    constants = {
        "w": random.normal(size=(2, rows, inputs)).astype(np.float32),
        "r": random.normal(size=(2, rows, width)).astype(np.float32),
    }
    x = random.normal(size=(steps, batch, inputs)).astype(np.float32)
    h = random.normal(size=(2, batch, width)).astype(np.float32)
    results = []
    for layout, feeds in ((0, {"x": x, "h": h}), (1, {"x": x.swapaxes(0, 1), "h": h.swapaxes(0, 1)})):
        node = helper.make_node(
            operator,
            ["x", "w", "r", "", "", "h"],
            ["y", "h1"],
            hidden_size=width,
            direction="bidirectional",
            layout=layout,
        )
        shapes = {name: array.shape for name, array in feeds.items()}
        model = tiny_model([node], shapes, ["y", "h1"], constants, opset=14)
        graph = import_model(save(model, tmp_path, f"layout{layout}.onnx"), native=True).graph
        results.append(Interpreter(graph).run(feeds))
    first, second = results
    assert np.allclose(second["y"], np.moveaxis(first["y"], 2, 0), atol=1e-6)
    assert np.allclose(second["h1"], first["h1"].swapaxes(0, 1), atol=1e-6)


def test_an_unknown_activation_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    constants = {"w": np.ones((1, 2, 3), np.float32), "r": np.ones((1, 2, 2), np.float32)}
    node = helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=2, activations=["Gelu"])
    model = tiny_model([node], {"x": (2, 1, 3)}, ["y"], constants, opset=14)
    with pytest.raises(UnsupportedError, match="activation gelu; supported are affine, elu"):
        import_model(save(model, tmp_path), native=True)
