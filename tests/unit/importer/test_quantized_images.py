"""Integers of images: with their channels last, as onnxruntime's optimizer writes them, and with borders."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

import qglow
from qglow.core.types import Array
from tests.unit.importer.tiny import session, tiny_model

Constants = dict[str, Array]
OWN = {"domain": "com.microsoft"}
TYPES = (np.uint8, np.int8)


def around(model: onnx.ModelProto, shape: tuple[int, ...]) -> None:
    """Hold the integers that qglow keeps for a model against onnxruntime's reals."""
    x = np.random.default_rng(41).normal(size=shape).astype(np.float32)
    (wanted,) = session(model).run(None, {"x": x})
    assert len(np.unique(wanted)) > 8
    loaded = qglow.load_model(model)
    assert loaded.is_quantized
    np.testing.assert_allclose(loaded.interpret({"x": x})["y"], wanted, atol=1e-6)
    np.testing.assert_allclose(loaded.quantize().compile()({"x": x})["y"], wanted, atol=1e-6)


def bordered(
    nodes: list[NodeProto], shape: tuple[int, ...], constants: Constants, kind: type, scale: str = "y_scale"
) -> onnx.ModelProto:
    """`nodes` from the integers "q" to "r", which have the parameters of y by default."""
    zero = 7 if kind is np.int8 else 131
    parameters: Constants = {
        "x_scale": np.array(0.03125, np.float32),
        "x_zero": np.array(zero - 4, kind),
        "y_scale": np.array(0.0625, np.float32),
        "y_zero": np.array(zero, kind),
    }
    first = helper.make_node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["q"])
    last = helper.make_node("DequantizeLinear", ["r", scale, scale.replace("scale", "zero")], ["y"])
    model = tiny_model([first, *nodes, last], {"x": shape}, ["y"], parameters | constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("group", [1, 4])
def test_a_convolution_of_channels_that_are_last(kind: type, group: int) -> None:
    generator = np.random.default_rng(42)
    bounds = (-60, 60) if kind is np.int8 else (70, 190)
    constants: Constants = {
        "w": generator.integers(*bounds, (8, 4 // group, 3, 3)).astype(kind),
        "w_scale": np.array(0.0078125, np.float32),
        "w_zero": np.array(0 if kind is np.int8 else 128, kind),
        "b": generator.integers(-900, 900, 8).astype(np.int32),
    }
    operands = ["q", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero", "b"]
    settings = {"pads": [1, 0, 1, 2], "strides": [2, 1], "group": group, "channels_last": 1}
    node = helper.make_node("QLinearConv", operands, ["r"], "images", **settings, **OWN)
    around(bordered([node], (2, 6, 5, 4), constants, kind), (2, 6, 5, 4))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("operator", ["QLinearAveragePool", "QLinearGlobalAveragePool"])
def test_means_of_channels_that_are_last(kind: type, operator: str) -> None:
    operands = ["q", "x_scale", "x_zero", "y_scale", "y_zero"]
    settings = {"kernel_shape": [2, 3]} if operator == "QLinearAveragePool" else {}
    node = helper.make_node(operator, operands, ["r"], "means", channels_last=1, **settings, **OWN)
    model = bordered([node], (3, 6, 5, 12), {"y_scale": np.array(0.015625, np.float32)}, kind)
    x = np.random.default_rng(43).normal(size=(3, 6, 5, 12)).astype(np.float32)
    (wanted,) = session(model).run(None, {"x": x})
    # A mean that lies half-way between two integers may be either.
    np.testing.assert_allclose(qglow.load_model(model).interpret({"x": x})["y"], wanted, atol=0.015626)
    assert np.mean(qglow.load_model(model).interpret({"x": x})["y"] == wanted) > 0.9


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("mode", "value"), [("constant", None), ("constant", 21), ("edge", None), ("reflect", None)]
)
def test_a_border_around_integers(kind: type, mode: str, value: int | None) -> None:
    constants: Constants = {"pads": np.array([0, 0, 1, 2, 0, 0, 3, 1])}
    operands = ["q", "pads"]
    if value is not None:
        constants["value"] = np.array(value, kind)
        operands.append("value")
    node = helper.make_node("Pad", operands, ["r"], "border", mode=mode)
    around(bordered([node], (1, 2, 6, 5), constants, kind, "x_scale"), (1, 2, 6, 5))


@pytest.mark.parametrize("kind", TYPES)
def test_a_border_that_is_quantized_and_an_amount_that_cuts(kind: type) -> None:
    constants: Constants = {
        "pads": np.array([0, 0, -1, 2, 0, 0, 3, -2]),
        "number": np.array(0.75, np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["number", "x_scale", "x_zero"], ["value"]),
        helper.make_node("Pad", ["q", "pads", "value"], ["r"], "border"),
    ]
    around(bordered(nodes, (1, 2, 6, 5), constants, kind, "x_scale"), (1, 2, 6, 5))
