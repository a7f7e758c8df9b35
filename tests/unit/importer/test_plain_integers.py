"""Quantization of computed values beyond quantized types: plain integers by arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.core.errors import ModelError
from qglow.core.types import Array
from tests.unit.importer.tiny import save, session, tiny_model

RANDOM = np.random.default_rng(4)
SHAPE = (2, 6, 5)
SCALES = np.array([0.02, 0.3, 1.0, 0.004, 0.5, 0.07], np.float32)
KINDS = {
    np.uint8: TensorProto.UINT8,
    np.int8: TensorProto.INT8,
    np.uint16: TensorProto.UINT16,
    np.int16: TensorProto.INT16,
}


def zeros_of(dtype: type, *shape: int) -> Array:
    bounds = np.iinfo(dtype)
    return RANDOM.integers(bounds.min // 2, bounds.max // 2, size=shape).astype(dtype)


def reals() -> Array:
    x = RANDOM.normal(size=SHAPE).astype(np.float32) * 40
    x[0, 0, :3] = [1e6, -1e6, 0.03]  # beyond the range, and a tie
    return x


def pair(axis: int, block: int) -> list[object]:
    attributes = {"axis": axis} | ({"block_size": block} if block else {})
    return [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Sub", ["x", "r"], ["negative"]),
        helper.make_node("Sub", ["r", "negative"], ["a"]),
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], **attributes),
        helper.make_node("Add", ["a", "d"], ["y"]),
    ]


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("block", [0, 2, 4])
def test_several_scales_are_those_of_onnxruntime(dtype: type, block: int, tmp_path: Path) -> None:
    shape = (6,) if not block else (2, -(-6 // block), 5)
    scales = SCALES if not block else RANDOM.uniform(0.01, 1, size=shape).astype(np.float32)
    constants = {"s": scales, "z": zeros_of(dtype, *shape)}
    model = tiny_model(pair(1, block), {"x": SHAPE}, ["y"], constants, opset=21)  # type: ignore[arg-type]
    model.ir_version = 10
    path, x = save(model, tmp_path), reals()
    loaded = qglow.load_model(path, native=True)
    (expected,) = session(path).run(None, {"x": x})
    for run in (loaded.interpret, loaded.compile(threads=1)):
        np.testing.assert_allclose(run({"x": x})["y"], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", KINDS)
def test_integers_of_16_bits_may_have_zero_points(dtype: type, tmp_path: Path) -> None:
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])]
    constants = {"s": np.float32(0.01), "z": zeros_of(dtype)}
    model = tiny_model(nodes, {"x": SHAPE}, ["y"], constants, opset=21, output_type=KINDS[dtype])
    model.ir_version = 10
    path, x = save(model, tmp_path), reals()
    loaded = qglow.load_model(path, native=True)
    (expected,) = session(path).run(None, {"x": x})
    for run in (loaded.interpret, loaded.compile(threads=1)):
        found = run({"x": x})["y"]
        assert found.dtype == expected.dtype == dtype
        assert np.array_equal(found, expected)


def test_an_input_of_bytes_may_have_several_scales(tmp_path: Path) -> None:
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=1)]
    constants = {"s": SCALES, "z": zeros_of(np.uint8, 6)}
    model = tiny_model(nodes, {"x": SHAPE}, ["y"], constants, input_type=TensorProto.UINT8)
    path = save(model, tmp_path)
    x = RANDOM.integers(0, 256, size=SHAPE).astype(np.uint8)
    (expected,) = session(path).run(None, {"x": x})
    loaded = qglow.load_model(path, native=True)
    for run in (loaded.interpret, loaded.compile(threads=1)):
        assert np.array_equal(run({"x": x})["y"], expected)


@pytest.mark.parametrize(
    ("scales", "attributes", "message"),
    [
        (SCALES[:5], {"axis": 1}, "5 parameters do not fit axis 1 of 'x'"),
        (SCALES, {"axis": 3}, "axis 3 is not one of 'x'"),
        (SCALES.reshape(1, 6), {"axis": 1, "block_size": 2}, r"do not fit blocks of 2: \[2, 3, 5\]"),
        (SCALES, {"axis": 1, "block_size": -2}, "block_size -2 is negative"),
    ],
)
def test_parameters_that_do_not_fit(
    scales: Array, attributes: dict[str, int], message: str, tmp_path: Path
) -> None:
    nodes = [helper.make_node("QuantizeLinear", ["x", "s"], ["y"], **attributes)]
    model = tiny_model(nodes, {"x": SHAPE}, ["y"], {"s": scales}, opset=21, output_type=TensorProto.UINT8)
    model.ir_version = 10
    with pytest.raises(ModelError, match=message):
        qglow.load_model(save(model, tmp_path), native=True)
