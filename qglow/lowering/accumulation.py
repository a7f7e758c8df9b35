"""Constants of the operators that multiply and accumulate int8: rule 5 of the numeric contract."""

from __future__ import annotations

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from qglow.graph.graph import Node, Value
from qglow.instructions.program import Buffer
from qglow.lowering.context import Lowering
from qglow.numerics.requantize import multiplier


def accumulation_operands(
    lowering: Lowering, node: Node, x: Value, w: Value, channels: int
) -> tuple[Buffer | None, Buffer | None]:
    """Bias and multiplier of a Conv or Gemm: float has no multiplier, int8 always has both."""
    bias = node.operand("bias")
    if not x.type.is_quantized:
        return (None if bias is None else lowering.read(bias)), None
    data = np.zeros(channels, np.int32) if bias is None else _int32(node, bias)
    shared = lowering.constant(f"{node.name}.bias" if bias is None else bias.name, data)
    return shared, lowering.constant(f"{node.name}.multiplier", _multiplier(node, x, w, channels))


def _int32(node: Node, bias: Value) -> Array:
    if bias.data is None or bias.data.dtype != np.int32:
        raise UnsupportedError(f"node '{node.name}': the bias of an int8 operator must be a constant int32")
    return bias.data


def _multiplier(node: Node, x: Value, w: Value, channels: int) -> Array:
    if x.type.quantization is None or w.type.quantization is None:
        raise UnsupportedError(f"node '{node.name}': input and weights must both be quantized")
    if any(w.type.quantization.zero_points):
        raise UnsupportedError(f"node '{node.name}': weights with a zero point other than 0")
    scale_x = np.float32(x.type.quantization.scale)
    scales = np.broadcast_to(np.asarray(w.type.quantization.scales, np.float32), (channels,))
    result = node.output.type.quantization
    if result is None:
        return np.asarray(scale_x * scales, np.float32)
    return multiplier(float(scale_x), scales, result.scale)
