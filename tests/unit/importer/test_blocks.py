"""Weights in blocks as models bring them, held against onnxruntime, and what is exported of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.errors import QglowError
from qglow.core.types import Array
from qglow.exporter import export_qdq
from qglow.exporter.plain import export_float
from qglow.importer.tensors import NARROW, to_array
from tests.unit.importer.tiny import save, session

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(2, 3, 80)).astype(np.float32)
DEPTH, COLUMNS, BLOCK, COUNT = 80, 24, 32, 3


def joined(codes: Array, bits: int) -> Array:
    """Bytes along the last axis, as MatMulNBits has them."""
    each = 8 // bits
    filled = np.pad(codes, ((0, 0), (0, -codes.shape[1] % each)))
    found = np.zeros((len(codes), filled.shape[1] // each), np.uint8)
    for number in range(each):
        found |= (filled[:, number::each] << (bits * number)).astype(np.uint8)
    return found


def model_of(
    nodes: list[onnx.NodeProto], constants: list[TensorProto], opset: int = 21, rows: int = 3
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, rows, DEPTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "blocks", [x], [y], constants)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def nbits_model(bits: int, zeros: str = "", bias: bool = False, **more: Any) -> onnx.ModelProto:
    codes = RANDOM.integers(0, 1 << bits, (COLUMNS, COUNT * BLOCK)).astype(np.uint8)
    constants = {
        "w": joined(codes, bits).reshape(COLUMNS, COUNT, -1),
        "s": RANDOM.uniform(0.1, 1, (COLUMNS, COUNT)).astype(np.float32),
    }
    if zeros == "whole":
        constants["z"] = joined(RANDOM.integers(0, 1 << bits, (COLUMNS, COUNT)).astype(np.uint8), bits)
    if zeros == "real":
        constants["z"] = RANDOM.normal(size=(COLUMNS, COUNT)).astype(np.float32)
    if bias:
        constants["b"] = RANDOM.normal(size=COLUMNS).astype(np.float32)
    names = ["x", "w", "s", "z" if zeros else "", "", "b" if bias else ""]
    attributes: dict[str, Any] = {"K": DEPTH, "N": COLUMNS, "bits": bits, "block_size": BLOCK} | more
    while not names[-1]:
        names.pop()
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **attributes)
    return model_of([node], [numpy_helper.from_array(a, n) for n, a in constants.items()])


def near(found: Array, wanted: Array, share: float = 1e-5) -> None:
    assert found.shape == wanted.shape
    assert float(np.abs(found - wanted).max()) < share * float(np.abs(wanted).max())


@pytest.mark.parametrize("bits", [4, 8, 2])
@pytest.mark.parametrize("zeros", ["", "whole", "real"])
@pytest.mark.parametrize("bias", [False, True])
def test_matmul_nbits_is_what_onnxruntime_computes(bits: int, zeros: str, bias: bool, tmp_path: Path) -> None:
    proto = nbits_model(bits, zeros, bias)
    model = qglow.load_model(save(proto, tmp_path), native=True)
    found = model.interpret({"x": X})["y"]
    if (bits, zeros) != (2, "real") and (bits, zeros) != (8, "real"):  # forms that onnxruntime may lack
        near(found, session(proto).run(None, {"x": X})[0])
    assert np.array_equal(model.compile()({"x": X})["y"], found)


def reordered(zeros: str = "") -> onnx.ModelProto:
    proto = nbits_model(4, zeros)
    groups = RANDOM.permutation(np.arange(DEPTH) // BLOCK).astype(np.int32)
    proto.graph.node[0].input.extend(["g"] if zeros else ["", "g"])
    proto.graph.initializer.append(numpy_helper.from_array(groups, "g"))
    return proto


def test_blocks_whose_weights_are_reordered_beside_zero_points_are_refused(tmp_path: Path) -> None:
    with pytest.raises(QglowError, match="g_idx beside zero points"):
        qglow.load_model(save(reordered("whole"), tmp_path), native=True)


def test_blocks_whose_weights_are_reordered_are_ordered(tmp_path: Path) -> None:
    proto = reordered()
    model = qglow.load_model(save(proto, tmp_path), native=True)
    found = model.interpret({"x": X})["y"]
    near(found, session(proto).run(None, {"x": X})[0])
    assert np.array_equal(model.compile()({"x": X})["y"], found)


def test_blocks_in_ascending_order_need_no_other(tmp_path: Path) -> None:
    proto = nbits_model(4)
    plain = qglow.load_model(save(proto, tmp_path), native=True)
    proto.graph.node[0].input.extend(["", "g"])
    groups = (np.arange(DEPTH) // BLOCK).astype(np.int32)
    proto.graph.initializer.append(numpy_helper.from_array(groups, "g"))
    stated = qglow.load_model(save(proto, tmp_path), native=True)
    assert [node.operator for node in stated.graph.nodes] == [node.operator for node in plain.graph.nodes]


@pytest.mark.parametrize("zeros", ["", "whole"])
def test_scales_of_16_bits_are_widened(zeros: str, tmp_path: Path) -> None:
    """A model of float16 is computed in float32; its scales are exact."""
    proto = nbits_model(4, zeros)
    for tensor in proto.graph.initializer:
        if tensor.name == "s":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), "s"))
    for value in (proto.graph.input[0], proto.graph.output[0]):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    model = qglow.load_model(save(proto, tmp_path), native=True)
    half = X.astype(np.float16)
    found = model.interpret({"x": half})["y"]
    wide = nbits_model_like(proto)
    expected = qglow.load_model(save(wide, tmp_path), native=True).interpret({"x": half.astype(np.float32)})[
        "y"
    ]
    assert found.dtype == np.float16 and np.array_equal(found, expected.astype(np.float16))
    near(found.astype(np.float32), session(proto).run(None, {"x": half})[0].astype(np.float32), 5e-3)
    assert np.array_equal(model.compile()({"x": half})["y"], found)


def nbits_model_like(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same in float32."""
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    for tensor in wide.graph.initializer:
        if tensor.name == "s":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), "s"))
    for value in (wide.graph.input[0], wide.graph.output[0]):
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    return wide


def test_blocks_whose_weights_are_reordered_otherwise_are_refused(tmp_path: Path) -> None:
    proto = nbits_model(4)
    proto.graph.node[0].input.extend(["", "g"])
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros(DEPTH, np.int32), "g"))
    with pytest.raises(QglowError, match="g_idx has blocks of other sizes than 32"):
        qglow.load_model(save(proto, tmp_path), native=True)


def test_weights_of_another_size_are_refused(tmp_path: Path) -> None:
    proto = nbits_model(4)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((COLUMNS, 7), np.uint8), "w"))
    with pytest.raises(QglowError, match=r"the weights \('w__numbers'\) have 168 elements, not 1152"):
        qglow.load_model(save(proto, tmp_path), native=True)


def integers(name: str, kind: int, values: Array) -> TensorProto:
    return helper.make_tensor(name, kind, values.shape, values.reshape(-1).tolist())


TYPES = [
    (TensorProto.INT4, -8, 8),
    (TensorProto.UINT4, 0, 16),
    (TensorProto.INT8, -128, 128),
    (TensorProto.UINT8, 0, 256),
]


def dequantizing(kind: int, low: int, high: int, zeros: bool, axis: int = 0) -> list[TensorProto]:
    shape, blocks = (DEPTH, COLUMNS), (COUNT, COLUMNS)
    values = RANDOM.integers(low, high, shape)
    scales = RANDOM.uniform(0.1, 1, blocks).astype(np.float32)
    points = RANDOM.integers(low, high, blocks)
    if axis:
        values, scales, points = values.T, scales.T, points.T
    found = [integers("w", kind, values), numpy_helper.from_array(np.ascontiguousarray(scales), "s")]
    return [*found, integers("z", kind, points)] if zeros else found


@pytest.mark.parametrize(("kind", "low", "high"), TYPES)
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("form", ["matmul", "transpose", "gemm"])
def test_dequantized_blocks_are_products(
    kind: int, low: int, high: int, zeros: bool, form: str, tmp_path: Path
) -> None:
    axis = int(form != "matmul")
    constants = dequantizing(kind, low, high, zeros, axis)
    names = [tensor.name for tensor in constants]
    nodes = [helper.make_node("DequantizeLinear", names, ["r"], axis=axis, block_size=BLOCK)]
    if form == "transpose":
        nodes.append(helper.make_node("Transpose", ["r"], ["t"], perm=[1, 0]))
    if form == "gemm":
        constants.append(numpy_helper.from_array(np.array([-1, DEPTH], np.int64), "flat"))
        constants.append(numpy_helper.from_array(RANDOM.normal(size=COLUMNS).astype(np.float32), "b"))
        nodes.append(helper.make_node("Reshape", ["x", "flat"], ["rows"]))
        nodes.append(helper.make_node("Gemm", ["rows", "r", "b"], ["y"], transB=1))
    else:
        nodes.append(helper.make_node("MatMul", ["x", "t" if form == "transpose" else "r"], ["y"]))
    proto = model_of(nodes, constants)
    model = qglow.load_model(save(proto, tmp_path), native=True)
    found = model.interpret({"x": X})["y"]
    near(found, session(proto).run(None, {"x": X})[0])
    assert [node.operator.name for node in model.graph.nodes][-1] == "BlockGemm"


def test_blocks_that_no_product_sums_over_are_floats(tmp_path: Path) -> None:
    constants = dequantizing(TensorProto.INT4, -8, 8, True, axis=1)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["r"], axis=1, block_size=BLOCK),
        helper.make_node("Mul", ["x", "r"], ["y"]),
    ]
    proto = model_of(nodes, constants, rows=COLUMNS)
    x = RANDOM.normal(size=(2, COLUMNS, DEPTH)).astype(np.float32)
    model = qglow.load_model(save(proto, tmp_path), native=True)
    near(model.interpret({"x": x})["y"], session(proto).run(None, {"x": x})[0])


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("kind", list(NARROW))
def test_integers_that_share_bytes_are_read(kind: int, raw: bool) -> None:
    narrow = NARROW[kind]
    low = 0 if narrow.unsigned else -(1 << (narrow.bits - 1))
    values = (np.arange(21) % (1 << narrow.bits) + low).reshape(3, 7)
    tensor = integers("t", kind, values)
    if raw:
        tensor = numpy_helper.from_array(numpy_helper.to_array(tensor), "t")
        assert tensor.raw_data
    found = to_array(tensor, quantized=True)
    assert found.dtype == np.int8 and np.array_equal(found, values)


@pytest.mark.parametrize("bits", [4, 8, 2])
@pytest.mark.parametrize("zeros", ["", "whole", "real"])
def test_the_exported_model_runs_and_comes_back(bits: int, zeros: str, tmp_path: Path) -> None:
    model = qglow.load_model(save(nbits_model(bits, zeros, bias=True), tmp_path), native=True)
    graph = model.graph
    found = model.interpret({"x": X})["y"]
    for proto in (export_float(graph), export_qdq(graph)):
        near(session(proto).run(None, {"x": X})[0], found)
        # Optimized, onnxruntime makes a MatMulNBits of both nodes, whose activations are int8.
        near(session(proto, optimize=True).run(None, {"x": X})[0], found, 0.05)
        again = qglow.load_model(save(proto, tmp_path, "again.onnx"), native=True)
        if zeros != "real":
            assert np.array_equal(again.interpret({"x": X})["y"], found)
            each = {t.name: len(t.raw_data) for t in proto.graph.initializer if t.raw_data}
            assert max(each.values()) == DEPTH * COLUMNS * max(bits, 4) // 8
