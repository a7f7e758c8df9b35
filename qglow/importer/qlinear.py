"""Import of operators on integers: Dequantize, the float operator, Quantize.

https://onnx.ai/onnx/operators/onnx__QLinearConv.html, onnx__QLinearMatMul.html, and onnxruntime's own:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qglow.core.types import ElementType, Quantization
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Mul, Sub
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.graph.ops.shape import Cast, Transpose
from qglow.importer import conv, elementwise, functions, linear, pool, shape, softmax
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.quantize import (
    bias,
    emit_quantize,
    read_parameters,
    read_scales,
    stored,
    with_parameters,
)

FLOAT_RULES: Mapping[str, ImportRule] = {
    **conv.RULES,
    **elementwise.RULES,
    **functions.RULES,
    **linear.RULES,
    **pool.RULES,
    **shape.RULES,
    **softmax.RULES,
}
"""Import rules of the float operators."""


def import_qlinear_conv(node: ImportNode) -> None:
    """Import QLinearConv: x, w and y with scale and zero point each; an int32 bias at scale s_x * s_w."""
    x, w = _real(node, 0), _real(node, 3, axis=0)
    scales = np.asarray(read_scales(node, 1).reshape(()) * read_scales(node, 4).reshape(-1), np.float32)
    operands = [x, w]
    if node.has_input(8):
        operands.append(node.part_constant("bias", bias(node, 8, scales, 0)))
    _finish(node, _compute_images(node, operands), 6)


def import_qlinear_matmul(node: ImportNode) -> None:
    """Import QLinearMatMul: a, b and y with scale and zero point each; those of b may be one a column."""
    operands = [_real(node, 0, axis=-2), _real(node, 3, axis=-1)]
    _finish(node, _compute(node, operands), 6)


def import_qgemm(node: ImportNode) -> None:
    """Import QGemm: C is int32 at scale alpha * s_a * s_b; y is float if it has no parameters."""
    columns = 0 if node.integer("transB", 0) else 1
    a, b = _real(node, 0), _real(node, 3, axis=columns)
    factor = np.float32(node.number("alpha", 1.0)) * read_scales(node, 1).reshape(())
    scales = np.asarray(factor * read_scales(node, 4).reshape(-1), np.float32)
    operands = [a, b]
    if node.has_input(6):
        operands.append(node.part_constant("bias", bias(node, 6, scales, -1)))
    if not node.has_input(7):
        name, result = node.name, node.proto.output[0]
        kind = _float_name(node)
        node.results[result] = node.inner(kind, operands, name, result).run(FLOAT_RULES[kind].function)
        return
    _finish(node, _compute(node, operands), 7)


def import_qlinear_concat(node: ImportNode) -> None:
    """Import QLinearConcat: y's parameters first, then every operand with its own."""
    count = len(node.inputs) - 2
    node.require(count >= 3 and count % 3 == 0, f"{len(node.inputs)} inputs are no list of operands")
    operands = [_real(node, index) for index in range(2, len(node.inputs), 3)]
    _finish(node, _compute(node, operands), 0)


def import_unary(node: ImportNode) -> None:
    """x, then y's parameters."""
    _finish(node, _compute_images(node, [_real(node, 0)]), 3)


def import_binary(node: ImportNode) -> None:
    """a and b, then y's parameters."""
    _finish(node, _compute(node, [_real(node, 0), _real(node, 3)]), 6)


def import_qlinear_softmax(node: ImportNode) -> None:
    """Import QLinearSoftmax, which is Softmax as opset 13 has it: along one axis."""
    newest = node.integer("opset", 13) >= 13
    node.require(newest, "opset below 13: Softmax over several axes of integers")
    _finish(node, _compute(node, [_real(node, 0)], "opset"), 3)


def _real(node: ImportNode, index: int, axis: int = 1) -> Value:
    """The reals of an operand whose scale and zero point are the inputs after it."""
    x = node.value(index)
    if x.type.is_plain_integer and x.data is None:
        return _real_of_numbers(node, index, x)
    quantization = read_parameters(node, x, index + 1, index + 2, axis, stored(node, index))
    return node.emit(Dequantize(), with_parameters(node, x, quantization), part=f"input{index}")


def _real_of_numbers(node: ImportNode, index: int, x: Value) -> Value:
    """The reals of integers that get their parameters only here, as those that Gather takes from a table."""
    kind = stored(node, index + 2)
    quantization = read_parameters(node, x, index + 1, index + 2, 1, kind)
    node.require(quantization.axis is None, f"'{x.name}' is computed from integers without parameters")
    part, zero = f"input{index}", quantization.zero_point - kind.shift
    real = node.emit(Cast(to=ElementType.FLOAT), x, part=f"{part}_numbers")
    offset = node.part_constant(f"{part}_zero", np.array(zero, np.float32))
    scale = node.part_constant(f"{part}_scale", np.array(quantization.scale, np.float32))
    centred = node.emit(Sub(), real, offset, part=f"{part}_centred")
    real = node.emit(Mul(), centred, scale, part=f"{part}_real")
    name, result = node.context.part_names(node.name, node.proto.output[0], f"{part}_integers")
    integers = node.context.emit(name, Quantize(), [real], result, quantization)
    return node.emit(Dequantize(), integers, part=part)


def _compute(node: ImportNode, operands: Sequence[Value], *dropped: str) -> Value:
    """The float operator under the node's name, without the attributes that only the integer form has."""
    _, result = node.context.part_names(node.name, node.proto.output[0], "real")
    kind = _float_name(node)
    return node.inner(kind, operands, node.name, result, dropped).run(FLOAT_RULES[kind].function)


def _compute_images(node: ImportNode, operands: Sequence[Value]) -> Value:
    """The float operator, where channels_last may say that the channels of x and y are their last axis."""
    if not node.integer("channels_last", 0):
        return _compute(node, operands, "channels_last")
    x, *others = operands
    rank = len(x.type.shape)
    node.require(rank > 2, f"channels_last of {rank} dimensions")
    first = node.emit(Transpose(perm=(0, rank - 1, *range(1, rank - 1))), x, part="channels_first")
    result = _compute(node, [first, *others], "channels_last")
    return node.emit(Transpose(perm=(0, *range(2, rank), 1)), result, part="channels_last")


def _float_name(node: ImportNode) -> str:
    """The float operator that a QLinear operator, or QGemm, is the integer form of."""
    name = node.proto.op_type
    return name.removeprefix("QLinear") if name.startswith("QLinear") else name.removeprefix("Q")


def _finish(node: ImportNode, real: Value, scale: int) -> None:
    """Quantize with the parameters in the inputs from `scale` on, to the type of the zero point."""
    kind = stored(node, scale + 1 if node.has_input(scale + 1) else (2 if scale == 0 else 0))
    if kind.unsigned:
        node.context.unsigned.add(node.proto.output[0])
    quantization: Quantization = read_parameters(node, real, scale, scale + 1, 1, kind)
    name, _ = node.context.part_names(node.name, node.proto.output[0], "quantize")
    emit_quantize(node, real, quantization, name)


RULES: dict[str, ImportRule] = {
    "QLinearConv": ImportRule(import_qlinear_conv, newest=10, reads_unsigned=True),
    "QLinearMatMul": ImportRule(import_qlinear_matmul, newest=21, reads_unsigned=True),
}

_QLINEAR_UNARY = ImportRule(import_unary, newest=1, reads_unsigned=True)
_QLINEAR_BINARY = ImportRule(import_binary, newest=1, reads_unsigned=True)

CONTRIBUTED: dict[str, ImportRule] = {
    "QGemm": ImportRule(import_qgemm, newest=1, reads_unsigned=True),
    "QLinearAdd": _QLINEAR_BINARY,
    "QLinearAveragePool": _QLINEAR_UNARY,
    "QLinearConcat": ImportRule(import_qlinear_concat, newest=1, reads_unsigned=True),
    "QLinearConv": ImportRule(import_qlinear_conv, newest=1, reads_unsigned=True),
    "QLinearGlobalAveragePool": _QLINEAR_UNARY,
    "QLinearLeakyRelu": _QLINEAR_UNARY,
    "QLinearMul": _QLINEAR_BINARY,
    "QLinearSigmoid": _QLINEAR_UNARY,
    "QLinearSoftmax": ImportRule(import_qlinear_softmax, newest=1, reads_unsigned=True),
}
"""Operators of onnxruntime's own domain, com.microsoft."""
