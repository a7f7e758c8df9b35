"""Places and integers that are computed while the model runs: GatherElements, GatherND, Mod, bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from qglow.core.types import Array
from qglow.graph.interpreter import Interpreter
from qglow.importer import import_model
from tests.unit.importer.cases import floats
from tests.unit.importer.tiny import save, tiny_model

BITS = {"BitShift": 2, "BitwiseAnd": 2, "BitwiseNot": 1, "BitwiseOr": 2, "BitwiseXor": 2}
"""Operators on the bits of integers, and their operands."""


def model_with_integers(node: onnx.NodeProto, x: Array, indices: Array) -> onnx.ModelProto:
    """A model of inputs x and i, the latter of integers."""
    result = TensorProto.FLOAT if x.dtype == np.float32 else TensorProto.INT32
    model = tiny_model([node], {"x": x.shape}, ["y"], opset=13, input_type=result, output_type=result)
    kind = TensorProto.INT64 if indices.dtype == np.int64 else TensorProto.INT32
    model.graph.input.append(helper.make_tensor_value_info("i", kind, indices.shape))
    return model


def assert_equal_to_onnxruntime(model: onnx.ModelProto, feeds: dict[str, Array], folder: Path) -> None:
    path = save(model, folder)
    (expected,) = onnxruntime.InferenceSession(str(path)).run(["y"], feeds)
    assert np.array_equal(Interpreter(import_model(path).graph).run(feeds)["y"], expected)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_elements_at_computed_places(axis: int, kind: type, tmp_path: Path) -> None:
    x = floats(3, 4, 5)
    indices = np.random.default_rng(1).integers(-3, 3, (2, 3, 4)).astype(kind)
    node = helper.make_node("GatherElements", ["x", "i"], ["y"], axis=axis)
    assert_equal_to_onnxruntime(model_with_integers(node, x, indices), {"x": x, "i": indices}, tmp_path)


@pytest.mark.parametrize(
    ("shape", "batch"), [((2, 2), 0), ((6, 3), 0), ((3, 2, 2), 1), ((3, 4, 1), 2), ((3, 2, 1), 1)]
)
def test_tuples_of_computed_places(shape: tuple[int, ...], batch: int, tmp_path: Path) -> None:
    x = floats(3, 4, 5)
    indices = np.random.default_rng(2).integers(-3, 3, shape)
    node = helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=batch)
    assert_equal_to_onnxruntime(model_with_integers(node, x, indices), {"x": x, "i": indices}, tmp_path)


@pytest.mark.parametrize("fmod", [0, 1])
def test_rest_of_integer_divisions_has_the_sign_of_the_divisor_or_of_the_dividend(
    fmod: int, tmp_path: Path
) -> None:
    x = np.array([7, -7, 7, -7, 6, -6, 0], np.int32)
    divisors = np.array([3, 3, -3, -3, 3, -3, 5], np.int32)
    node = helper.make_node("Mod", ["x", "i"], ["y"], fmod=fmod)
    assert_equal_to_onnxruntime(model_with_integers(node, x, divisors), {"x": x, "i": divisors}, tmp_path)


@pytest.mark.parametrize(("operator", "operands"), BITS.items())
def test_bits_of_integers(operator: str, operands: int, tmp_path: Path) -> None:
    x, y = np.array([5, 12, 255, 0], np.uint8), np.array([3, 1, 7, 2], np.uint8)
    feeds = {"x": x, "i": y} if operands == 2 else {"x": x}
    attributes = {"direction": "LEFT"} if operator == "BitShift" else {}
    node = helper.make_node(operator, list(feeds), ["y"], **attributes)
    uint8 = TensorProto.UINT8
    shapes = {name: array.shape for name, array in feeds.items()}
    model = tiny_model([node], shapes, ["y"], opset=18, input_type=uint8, output_type=uint8)
    assert_equal_to_onnxruntime(model, feeds, tmp_path)
