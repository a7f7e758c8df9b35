"""Matrix products [rows, N] x [N, N] as onnxruntime and OpenVINO have them; weights are drawn integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.report.bench import Contender


def nbits_product(rows: int, size: int, bits: int, block: int, level: int = 0) -> onnx.ModelProto:
    """MatMulNBits with a scale and a zero point for each block, at one of its accuracy levels."""
    random, count = np.random.default_rng(size), -(-size // block)
    constants = {
        "w": random.integers(0, 256, (size, count, block * bits // 8)).astype(np.uint8),
        "scales": random.uniform(0.5, 1.5, size * count).astype(np.float32) / np.float32(1 << bits),
        "zeros": random.integers(0, 256, size * -(-count * bits // 8)).astype(np.uint8),
    }
    sizes = {"K": size, "N": size, "bits": bits, "block_size": block, "accuracy_level": level}
    return _model("MatMulNBits", sizes, rows, size, constants)


def dynamic_product(rows: int, size: int) -> onnx.ModelProto:
    """DynamicQuantizeMatMul with a scale for each column."""
    random = np.random.default_rng(size)
    scales = random.uniform(0.5, 1.5, size).astype(np.float32) / np.float32(127)
    constants = {"w": random.integers(-127, 128, (size, size)).astype(np.int8), "scales": scales}
    return _model("DynamicQuantizeMatMul", {}, rows, size, constants)


def _model(
    operator: str, attributes: Mapping[str, Any], rows: int, size: int, constants: Mapping[str, Array]
) -> onnx.ModelProto:
    """A model of one operator of com.microsoft."""
    node = helper.make_node(operator, ["x", *constants], ["y"], domain="com.microsoft", **attributes)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, size]) for name in ("x", "y")]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "product", values[:1], values[1:], stored)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def openvino_product(x: Array, bits: int, block: int, rounds: bool) -> Contender:
    """A call of OpenVINO on x [rows, N] by compressed weights in blocks, on one thread.

    rounds: whether it may round activations to int8, as is its default; else they stay float32. Raises
    UsageError if OpenVINO is not installed.
    """
    try:
        import openvino
        from openvino import opset13
    except ImportError as error:
        raise UsageError('OpenVINO is not installed: pip install "qglow[bench]"') from error
    rows, size = x.shape
    random, groups = np.random.default_rng(size), size // block
    kind = openvino.Type.u8 if bits == 8 else openvino.Type.u4

    # Constants refer to the memory of arrays and do not keep it alive.
    kept: list[Array] = []

    def codes(*shape: int) -> Any:
        stored = random.integers(0, 256, int(np.prod(shape)) * bits // 8).astype(np.uint8)
        kept.append(stored)
        return openvino.op.Constant(openvino.Tensor(stored, openvino.Shape(shape), kind))

    scales = (random.uniform(0.5, 1.5, (size, groups, 1)) / (1 << bits)).astype(np.float16)
    weights, zeros = codes(size, groups, block), codes(size, groups, 1)
    centred = opset13.subtract(opset13.convert(weights, "f16"), opset13.convert(zeros, "f16"))
    scaled = opset13.multiply(centred, opset13.constant(scales))
    matrix = opset13.reshape(scaled, opset13.constant(np.array([size, size])), False)
    given = opset13.parameter([rows, size], np.float32, name="x")
    result = opset13.matmul(given, opset13.convert(matrix, "f32"), False, True)
    options = {
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    } | ({} if rounds else {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0})
    compiled = openvino.Core().compile_model(openvino.Model([result], [given], "product"), "CPU", options)
    request = compiled.create_infer_request()
    request.set_input_tensor(openvino.Tensor(x, shared_memory=True))

    def run() -> None:
        request.infer()

    run.__dict__["keep"] = x, kept
    return run
