"""Language models quantized without data for onnxruntime's fastest operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from qglow.core.types import Array

BLOCK = 32
INT8_ACTIVATIONS = 4
"""The accuracy level at which onnxruntime multiplies weights of 4 bits by activations in int8."""
_LARGEST = 15


def with_dynamic_int8(path: Path, folder: Path) -> Path:
    """The model with weights in int8 by channel, and activations that are quantized while it runs."""
    written = folder / "dynamic.onnx"
    operators = ["MatMul"]
    quantize_dynamic(
        path, written, op_types_to_quantize=operators, per_channel=True, weight_type=QuantType.QInt8
    )
    return written


def weights_of_4_bits(path: Path, folder: Path) -> Path:
    """The model with weights of 4 bits in blocks of 32, each with a scale and a zero point: MatMulNBits."""
    model = onnx.load(path)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    products = [
        node
        for node in model.graph.node
        if node.op_type == "MatMul" and _is_matrix(weights.get(node.input[1]))
    ]
    used: set[str] = set()
    for node in products:
        name = node.input[1]
        made = packed(numpy_helper.to_array(weights[name]))
        stored = [numpy_helper.from_array(array, f"{name}.{part}") for part, array in made.items()]
        model.graph.initializer.extend(stored)
        used.add(name)
        _replace(node, [tensor.name for tensor in stored], weights[name].dims)
    left = {name for node in model.graph.node for name in node.input}
    for name in used - left:
        model.graph.initializer.remove(weights[name])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    written = folder / "nbits.onnx"
    onnx.save(model, written)
    return written


def packed(weights: Array) -> dict[str, Array]:
    """Weights [K, N] as MatMulNBits has them: two in a byte, scales and zero points of the blocks.

    The last block may be short.
    """
    columns = weights.T
    missing = -columns.shape[1] % BLOCK
    blocks = np.pad(columns, ((0, 0), (0, missing))).reshape(len(columns), -1, BLOCK)
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    scales = np.maximum((high - low) / _LARGEST, np.float32(2.0**-100))
    zeros = np.clip(np.rint(-low / scales), 0, _LARGEST)
    steps = np.clip(np.rint(blocks / scales[..., None]) + zeros[..., None], 0, _LARGEST)
    zeros = np.pad(zeros, ((0, 0), (0, zeros.shape[1] % 2)))
    return {
        "packed": _pairs(steps),
        "scales": scales.astype(np.float32).reshape(-1),
        "zeros": _pairs(zeros).reshape(-1),
    }


def _pairs(numbers: Array) -> Array:
    """Numbers below 16, two in a byte, the first in the low half."""
    whole = numbers.astype(np.uint8)
    return np.asarray(whole[..., ::2] | whole[..., 1::2] << 4)


def _replace(node: NodeProto, constants: list[str], shape: list[int]) -> None:
    """Turn a product into one by packed weights."""
    node.op_type, node.domain = "MatMulNBits", "com.microsoft"
    node.input[:] = [node.input[0], *constants]
    sizes = {"K": shape[0], "N": shape[1], "bits": 4, "block_size": BLOCK}
    for key, value in {**sizes, "accuracy_level": INT8_ACTIVATIONS}.items():
        node.attribute.append(helper.make_attribute(key, value))


def _is_matrix(tensor: TensorProto | None) -> bool:
    return tensor is not None and len(tensor.dims) == 2
