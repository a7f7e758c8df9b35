"""Instructions and constants of the operators that multiply and accumulate: rules 3 and 5.

One instruction suffices for floats, and for an int8 input with an int8 or float result: it rescales its
own sums. Otherwise the int32 sums are stored, of an int8 input or of each byte of an int16 one, and a
further instruction rescales them.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array, ElementType, TensorType
from qglow.graph.graph import Node, Value
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.ops.quantize import HighByte, LowByte, Requantize
from qglow.instructions.program import Buffer
from qglow.lowering.bounds import bounds
from qglow.lowering.context import Lowering
from qglow.numerics.requantize import multiplier


def emit_accumulation(
    lowering: Lowering,
    node: Node,
    operation: Convolution | FullyConnected,
    dest: Buffer,
    source: Buffer,
    filters: Buffer,
) -> None:
    """Emit the sums of products of `source` and the weights `filters` into `dest`.

    `operation` comes without the node's bounds, which are added here. Raises UnsupportedError for
    operands whose quantization is not supported.
    """
    x, w = node.operand("x"), node.operand("w")
    assert x is not None and w is not None
    limits = bounds(node.operator.lo, node.operator.hi, node.output.type)  # type: ignore[attr-defined]
    bias, factors = _operands(lowering, node, x, w, dest.type.shape[-1])
    if not (_is_wide(x.type) or _is_wide(node.output.type)):
        bounded = dataclasses.replace(operation, **limits)  # type: ignore[arg-type]
        lowering.emit(bounded, dest, source, filters, bias, factors)
        return

    def sums(part: str, of: Buffer, start: Buffer | None) -> Buffer:
        result = lowering.allocate(f"{dest.name}.{part}", TensorType(ElementType.INT32, dest.type.shape))
        lowering.emit(operation, result, of, filters, start, suffix=f".{part}")
        return result

    rescaling = Requantize(**limits)  # type: ignore[arg-type]
    if not _is_wide(x.type):
        lowering.emit(rescaling, dest, sums("sums", source, bias), factors)
        return
    high, low = (_byte(lowering, source, byte) for byte in (HighByte(), LowByte()))
    nothing = lowering.constant(f"{node.name}.nothing", np.zeros(dest.type.shape[-1], np.int32))
    parts = sums("low", low, bias), sums("high", high, nothing)
    lowering.emit(rescaling, dest, parts[0], factors, parts[1])


def _is_wide(kind: TensorType) -> bool:
    return kind.quantization is not None and kind.quantization.is_wide


def _byte(lowering: Lowering, source: Buffer, operation: HighByte | LowByte) -> Buffer:
    assert source.type.quantization is not None
    parameters = type(operation).parameters(source.type.quantization)
    return lowering.derived(operation, source, source.type.quantized(parameters), f".{operation.opcode}")


def _operands(
    lowering: Lowering, node: Node, x: Value, w: Value, channels: int
) -> tuple[Buffer | None, Buffer | None]:
    """Bias and multiplier of a sum of products: float has no multiplier, integers always have both."""
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
