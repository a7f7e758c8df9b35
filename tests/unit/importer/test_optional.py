"""Optional values: a tensor is there, and an input that is left out is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import qglow
from tests.unit.importer.tiny import save, session


@pytest.mark.parametrize("given", [["x"], [""], []])
def test_optional_values(tmp_path: Path, given: list[str]) -> None:
    nodes = [
        helper.make_node("OptionalGetElement", ["x"], ["y"]),
        helper.make_node("OptionalHasElement", given, ["there"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])
    results = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3]),
        helper.make_tensor_value_info("there", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(nodes, "optional", [x], results)
    path = save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path)
    inputs = {"x": np.array([[1.0, -2.0, 3.0]], np.float32)}
    expected = session(path).run(None, inputs)
    model = qglow.load_model(path, native=True)
    for found in (model.interpret(inputs), model.compile()(inputs)):
        np.testing.assert_array_equal(found["y"], expected[0])
        np.testing.assert_array_equal(found["there"], expected[1])


def test_largest_of_integers_of_8_bits(tmp_path: Path) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 3], pads=[1, 0, 0, 1])
    x, y = (helper.make_tensor_value_info(name, TensorProto.UINT8, None) for name in "xy")
    x.type.tensor_type.shape.dim.add().dim_value = 1
    for size in (2, 5, 6):
        x.type.tensor_type.shape.dim.add().dim_value = size
    graph = helper.make_graph([node], "largest", [x], [y])
    path = save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path)
    inputs = {"x": np.random.default_rng(0).integers(0, 256, (1, 2, 5, 6)).astype(np.uint8)}
    (expected,) = session(path).run(None, inputs)
    model = qglow.load_model(path, native=True)
    for found in (model.interpret(inputs), model.compile()(inputs)):
        np.testing.assert_array_equal(found["y"], expected)
