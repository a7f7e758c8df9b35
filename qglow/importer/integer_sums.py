"""Import of sums of integers, and of ranges that are measured while the model runs.

https://onnx.ai/onnx/operators/ ConvInteger, DynamicQuantizeLinear, MatMulInteger, and onnxruntime's own
DynamicQuantizeMatMul and MatMulIntegerToFloat:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import Array, ElementType, Quantization
from qglow.graph.graph import Value, constant
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul, Sub
from qglow.graph.ops.functions import Round
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.graph.ops.reduce import ReduceMax, ReduceMin
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Cast, Identity, Reshape
from qglow.importer import conv
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.quantize import stored

LEVELS = 255
"""Steps between the smallest and the largest uint8."""
LARGEST_SUM = (1 << 31) // (1 << 15) - 1
"""Largest sum of weights for which int16 times int8 stays within int32, and float32 holds it exactly."""

MOST_TERMS = (1 << 24) // 255**2
"""Most products of two differences of bytes of which float32 holds every sum exactly."""


def import_dynamic_quantize(node: ImportNode) -> None:
    """Import DynamicQuantizeLinear: uint8 over the range of x, with its scale and zero point.

    As onnxruntime computes it: the scale is 1 where x is all zero.
    """
    x = node.value(0)
    node.require(x.type.is_float and x.type.size > 0, f"input 0 is {x.type}; floats are supported")
    integers, scale, zero = _quantized(node, x)
    for output, value in enumerate((integers, None, zero)):
        if value is not None and node.proto.output[output]:
            node.emit(Cast(to=ElementType.UINT8), value, output=output)
    node.results[node.proto.output[1]] = scale


def _quantized(node: ImportNode, x: Value) -> tuple[Value, Value, Value]:
    """Emit integers of x as floats, their scale and their zero point."""
    axes, nothing = tuple(range(len(x.type.shape))), _number(node, "nothing", 0.0)
    low = node.emit(ReduceMin(axes=axes, keepdims=False), x, part="least") if axes else x
    high = node.emit(ReduceMax(axes=axes, keepdims=False), x, part="largest") if axes else x
    low = node.emit(Clip(hi=0.0), low, part="low")
    high = node.emit(Clip(lo=0.0), high, part="high")
    extent = node.emit(Sub(), high, low, part="extent")
    divided = node.emit(Div(), extent, _number(node, "levels", LEVELS), part="step")
    same = node.emit(Compare(relation="equal"), extent, nothing, part="same")
    result = node.proto.output[1] if node.proto.op_type == "DynamicQuantizeLinear" else ""
    operands = (same, _number(node, "one", 1.0), divided)
    if result:
        node.emit(Where(), *operands, output=1)
        scale = node.results[result]
    else:
        scale = node.emit(Where(), *operands, part="scale")
    offset = node.emit(Sub(), nothing, node.emit(Div(), low, scale, part="from"), part="offset")
    bounded = node.emit(Clip(lo=0.0, hi=LEVELS), offset, part="bounded")
    zero = node.emit(Round(), bounded, part="zero")
    rounded = node.emit(Round(), node.emit(Div(), x, scale, part="divided"), part="rounded")
    moved = node.emit(Add(), rounded, zero, part="moved")
    return node.emit(Clip(lo=0.0, hi=LEVELS), moved, part="integers"), scale, zero


def import_matmul_integer(node: ImportNode) -> None:
    """Import MatMulInteger: (A - zero point of A) times (B - zero point of B), int32."""
    if _has_computed_weights(node):
        rows = node.kind().shape
        reals = _exact_reals(node, rows[-1] if rows else 0, -1)
        node.emit(Cast(to=ElementType.INT32), node.emit(MatMul(), *reals, part="product"))
        return
    sums = _sums(node, _centred(node, 0, 2), _weights(node, 1, 3, -1))
    if sums.type.is_float:
        node.emit(Cast(to=ElementType.INT32), sums)
    else:
        node.emit(Identity(), sums)


def import_conv_integer(node: ImportNode) -> None:
    """Import ConvInteger: a Conv of x and w less their zero points, int32. Padding is x's zero point."""
    if _has_computed_weights(node):
        operands = _exact_reals(node, math.prod(node.kind(1).shape[1:]), 0)
    else:
        weights = _weights(node, 1, 3, 0)
        largest = _largest_sum(weights)
        fits = largest <= LARGEST_SUM
        node.require(fits, f"weights of one channel add up to {largest}; up to {LARGEST_SUM}")
        operands = [_centred(node, 0, 2), _reals_of(node, weights, "weights")]
    inner = node.inner("Conv", operands, *node.context.part_names(node.name, node.proto.output[0], "product"))
    conv.import_conv(inner)
    inner.finish()
    node.emit(Cast(to=ElementType.INT32), inner.results[inner.proto.output[0]])


def _has_computed_weights(node: ImportNode) -> bool:
    """Whether both operands are computed bytes without parameters."""
    values = node.value(0), node.value(1)
    bytes_only = all(v.type.element in (ElementType.INT8, ElementType.UINT8) for v in values)
    return bytes_only and all(v.data is None and not v.type.is_quantized for v in values)


def _exact_reals(node: ImportNode, terms: int, axis: int) -> list[Value]:
    """Emit both operands less their zero points as floats, whose sums of so many products are exact.

    axis: that along which the second operand may have several zero points.
    """
    node.require(terms <= MOST_TERMS, f"sums of {terms} products; up to {MOST_TERMS} of computed operands")
    operands = []
    for index in (0, 1):
        real = _as_reals(node, index)
        if node.has_input(index + 2):
            found, shape = node.kind(index + 2).size, real.type.shape
            fits = found == 1 or (index == 1 and shape[axis] == found)
            node.require(fits, f"it has {found} zero points for input {index} of {node.kind(index)}")
            along = (1,) * len(shape) if found == 1 else (found, *(1,) * ((len(shape) - 1) * (axis + 1)))
            zero = node.emit(Reshape(shape=along), _as_reals(node, index + 2), part=f"zero{index}")
            real = node.emit(Sub(), real, zero, part=f"centred{index}")
        operands.append(real)
    return operands


def import_dynamic_quantize_matmul(node: ImportNode) -> None:
    """Import DynamicQuantizeMatMul: A as DynamicQuantizeLinear has it, B with scales, and a bias."""
    a = node.value(0)
    node.require(a.type.is_float and a.type.size > 0, f"input 0 is {a.type}; floats are supported")
    integers, scale, zero = _quantized(node, a)
    centred = _whole(node, node.emit(Sub(), integers, zero, part="centred"), "a")
    _finish_real(node, _sums(node, centred, _weights(node, 1, 3, -1)), scale, node.value(2), 4)


def import_matmul_integer_to_float(node: ImportNode) -> None:
    """Import MatMulIntegerToFloat: the sums of MatMulInteger times both scales, and a bias."""
    sums = _sums(node, _centred(node, 0, 4), _weights(node, 1, 5, -1))
    _finish_real(node, sums, node.value(2), node.value(3), 6)


def _finish_real(node: ImportNode, sums: Value, scale_a: Value, scale_b: Value, bias: int) -> None:
    """Emit the sums times both scales, and the addition of the optional input of number `bias`."""
    if not sums.type.is_float:
        sums = node.emit(Cast(to=ElementType.FLOAT), sums, part="sums")
    scale = node.emit(Mul(), scale_a, scale_b, part="scales")
    if not node.has_input(bias):
        node.emit(Mul(), sums, scale)
        return
    node.emit(Add(), node.emit(Mul(), sums, scale, part="scaled"), node.value(bias))


def _sums(node: ImportNode, a: Value, weights: Array) -> Value:
    """Emit exact sums of products: floats if one product can hold them, else int32, added up of several."""
    node.require(weights.ndim == 2, f"weights of {weights.ndim} axes; a matrix has two")
    node.require(bool(a.type.shape) and a.type.shape[-1] == len(weights), "its operands do not go together")
    found: list[Value] = []
    for start, end in _spans(weights):
        count = len(found)
        part = a
        if end - start < len(weights):
            starts = (*[0] * (len(a.type.shape) - 1), start)
            cut = Slice(starts, (*a.type.shape[:-1], end), (1,) * len(starts))
            part = node.emit(cut, a, part=f"columns{count}")
        reals = _reals_of(node, weights[start:end], f"weights{count}")
        found.append(node.emit(MatMul(), part, reals, part=f"product{count}"))
    if len(found) == 1:
        return found[0]
    whole = [node.emit(Cast(to=ElementType.INT32), v, part=f"int32_{n}") for n, v in enumerate(found)]
    total = whole[0]
    for number, value in enumerate(whole[1:]):
        total = node.emit(Add(), total, value, part=f"sum{number}")
    return total


def _spans(weights: Array) -> list[tuple[int, int]]:
    """Return ranges of rows of weights [K, N] whose sums stay within `LARGEST_SUM` in every column."""
    spans, start = [], 0
    sums = np.zeros(weights.shape[1], np.int64)
    for row, values in enumerate(np.abs(weights)):
        if np.max(sums + values, initial=0) > LARGEST_SUM:
            spans.append((start, row))
            start, sums = row, np.zeros_like(sums)
        sums += values
    return [*spans, (start, len(weights))]


def _centred(node: ImportNode, index: int, zero_point: int) -> Value:
    """Emit an operand less its zero point, as int16 and then as the reals that these stand for."""
    x = node.value(index)
    if x.type.is_quantized:
        quantization = x.type.quantization
        zero = _zero_points(node, zero_point, index)
        same = quantization is not None and quantization.axis is None and zero.size == 1
        fits = same and quantization == Quantization.per_tensor(1.0, int(zero.reshape(())))
        node.require(fits, f"it reads the integers of '{x.name}', which have a scale or another zero point")
        return node.emit(Dequantize(), x, part=f"real{index}")
    bytes_only = x.type.element in (ElementType.INT8, ElementType.UINT8)
    node.require(bytes_only, f"'{x.name}' is {x.type}; int8 and uint8 are supported")
    real = _as_reals(node, index)
    if node.has_input(zero_point):
        found = node.kind(zero_point).size
        node.require(found == 1, f"it has {found} zero points for input {index}; one is supported")
        real = node.emit(Sub(), real, _as_reals(node, zero_point), part=f"centred{index}")
    return _whole(node, real, str(index))


def _as_reals(node: ImportNode, index: int) -> Value:
    """Emit integers of the model as floats; constants may be stored in another form than they have there."""
    value = node.value(index)
    if value.data is None:
        return node.emit(Cast(to=ElementType.FLOAT), value, part=f"cast{index}")
    data = np.asarray(value.data, np.int64) - stored(node, index).shift
    return node.part_constant(f"real{index}", data.astype(np.float32))


def _whole(node: ImportNode, real: Value, part: str) -> Value:
    """Emit whole numbers up to 255 as int16 of scale 1, and as the reals that these stand for."""
    name, result = node.context.part_names(node.name, node.proto.output[0], f"whole_{part}")
    quantization = Quantization.per_tensor(1.0, 0, ElementType.INT16)
    integers = node.context.emit(name, Quantize(), [real], result, quantization)
    return node.emit(Dequantize(), integers, part=f"real_{part}")


def _weights(node: ImportNode, index: int, zero_point: int, axis: int) -> Array:
    """Read constant weights less their zero points, int64. Refuses those that int8 does not hold then."""
    w = node.value(index)
    node.require(w.data is not None, f"the weights '{w.name}' are computed; they must be constant")
    zeros = _zero_points(node, zero_point, index)
    rank = len(w.type.shape)
    node.require(rank > 0, f"the weights '{w.name}' have no axes")
    channels = w.type.shape[axis]
    node.require(zeros.size in (1, channels), f"{zeros.size} zero points do not fit {channels} channels")
    along = zeros.reshape(-1, *[1] * (rank - 1 - axis % rank)) if zeros.size > 1 else zeros.reshape(())
    centred = np.asarray(w.data, np.int64) - along
    low, high = int(np.min(centred, initial=0)), int(np.max(centred, initial=0))
    node.require(low >= -128 and high <= 127, f"weights less their zero points are {low} to {high}, not int8")
    return centred


def _largest_sum(weights: Array) -> int:
    """Return the largest sum of magnitudes over an output channel, which lies along axis 0."""
    return int(np.max(np.abs(weights).reshape(len(weights), -1).sum(axis=1), initial=0))


def _reals_of(node: ImportNode, weights: Array, part: str) -> Value:
    """Emit constant integers as the reals that they stand for, of scale 1."""
    _, name = node.context.part_names(node.name, node.proto.output[0], f"{part}_int8")
    integers = constant(name, weights.astype(np.int8), Quantization.per_tensor(1.0, 0))
    return node.emit(Dequantize(), integers, part=part)


def _zero_points(node: ImportNode, index: int, of: int) -> Array:
    """Read constant zero points as int64, as the operand of that number is stored here."""
    if not node.has_input(index):
        return np.array(stored(node, of).shift, np.int64)
    return np.asarray(node.array(index, "the zero point"), np.int64)


def _number(node: ImportNode, part: str, value: float) -> Value:
    return node.part_constant(part, np.array(value, np.float32))


RULES: dict[str, ImportRule] = {
    "ConvInteger": ImportRule(import_conv_integer, newest=10, reads_unsigned=True),
    "DynamicQuantizeLinear": ImportRule(import_dynamic_quantize, newest=11),
    "MatMulInteger": ImportRule(import_matmul_integer, newest=10, reads_unsigned=True),
}

CONTRIBUTED: dict[str, ImportRule] = {
    "DynamicQuantizeMatMul": ImportRule(import_dynamic_quantize_matmul, newest=1, reads_unsigned=True),
    "MatMulIntegerToFloat": ImportRule(import_matmul_integer_to_float, newest=1, reads_unsigned=True),
}
"""Operators of onnxruntime's own domain, com.microsoft."""
