"""Import of products of integers, whose sums are exact.

https://onnx.ai/onnx/operators/ ConvInteger, MatMulInteger, and onnxruntime's own
DynamicQuantizeMatMul and MatMulIntegerToFloat:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array, ElementType, Quantization
from qglow.graph.graph import Value, constant
from qglow.graph.ops.elementwise import Add, Mul, Sub
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.graph.ops.reduce import ReduceSum
from qglow.graph.ops.shape import Cast, Identity, Reshape
from qglow.importer import conv
from qglow.importer.measured_ranges import number, quantized_by_range
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.quantize import stored
from qglow.numerics.quantize import quantize_by

LARGEST_SUM = (1 << 24) // 256 - 1
"""Largest sum of weights for which float32 holds their sum of products with bytes exactly."""

MOST_TERMS = (1 << 24) // 255**2
"""Most products of two differences of bytes of which float32 holds every sum exactly."""


def import_matmul_integer(node: ImportNode) -> None:
    """Import MatMulInteger: (A - zero point of A) times (B - zero point of B), int32."""
    if _has_computed_weights(node):
        rows = node.kind().shape
        reals = _exact_reals(node, rows[-1] if rows else 0, -1)
        node.emit(Cast(to=ElementType.INT32), node.emit(MatMul(), *reals, part="product"))
        return
    sums = _sums(node, _bytes(node, 0, 2), _matrix(node, 1, 3))
    if sums.type.is_float:
        node.emit(Cast(to=ElementType.INT32), sums)
    else:
        node.emit(Identity(), sums)


def import_conv_integer(node: ImportNode) -> None:
    """Import ConvInteger: a Conv of x and w less their zero points, int32. Padding is x's zero point."""
    if _has_computed_weights(node):
        x, w = _exact_reals(node, math.prod(node.kind(1).shape[1:]), 0)
        total = node.emit_by(conv.import_conv, "Conv", [x, w], "product")
    else:
        total = _windows(node, _centred(node, 0, 2), _weights(node, 1, 3, 0))
    node.emit(Cast(to=ElementType.INT32), total)


def _windows(node: ImportNode, x: Value, weights: _Weights) -> Value:
    """Emit exact sums over windows of x, and those of x alone for what is added to channels."""
    w = weights.integers
    node.require(w.ndim > 2, f"weights of {w.ndim} axes; a convolution has three or more")
    channels, inputs, *taps = w.shape
    magnitudes = np.abs(w).reshape(channels, -1) + np.abs(weights.added)[:, None]
    largest = int(np.max(magnitudes.sum(axis=1), initial=0))
    node.require(largest <= LARGEST_SUM, f"weights of one channel add up to {largest}; up to {LARGEST_SUM}")
    filters = _reals_of(node, w, "weights")
    total = node.emit_by(conv.import_conv, "Conv", [x, filters], "product")
    if not np.any(weights.added):
        return total
    groups = node.integer("group", 1)
    node.require(groups in (1, channels), f"{groups} groups of channels, whose weights need nine bits")
    ones = _reals_of(node, np.ones((groups, inputs, *taps), np.int64), "ones")
    added = node.part_constant("added", weights.added.reshape(-1, *[1] * len(taps)).astype(np.float32))
    windows = node.emit_by(conv.import_conv, "Conv", [x, ones], "windows")
    shift = node.emit(Mul(), windows, added, part="shift")
    return node.emit(Add(), total, shift, part="total")


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
    integers, scale, zero = quantized_by_range(node, a)
    operand = _Bytes(_stored_as(node, integers, _UNSIGNED, "a"), zero)
    _finish_real(node, _sums(node, operand, _matrix(node, 1, 3)), scale, node.value(2), 4)


def import_matmul_integer_to_float(node: ImportNode) -> None:
    """Import MatMulIntegerToFloat: the sums of MatMulInteger times both scales, and a bias."""
    sums = _sums(node, _bytes(node, 0, 4), _matrix(node, 1, 5))
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


@dataclass(frozen=True)
class _Bytes:
    """Bytes as reals, quantized with scale 1, and their zero point, which may be computed; None for 0."""

    reals: Value
    zero: Value | None = None


@dataclass(frozen=True)
class _Weights:
    """Weights less their zero points: as int8, and what is to be added to all of a channel [channels]."""

    integers: Array
    added: Array


def _sums(node: ImportNode, a: _Bytes, weights: _Weights) -> Value:
    """Emit exact sums of products: floats if one product can hold them, else int32, added up of several.

    With a zero point z of a, and d added to a column of weights w, the sum of (a - z) * (w + d) is that of
    a * w, less z times the sum of w, and d times the sum of a - z. Each is a whole number below 2 ** 24.
    """
    found = [_sum_over(node, a, weights, span, n) for n, span in enumerate(_spans(weights))]
    if len(found) == 1:
        return found[0]
    whole = [node.emit(Cast(to=ElementType.INT32), v, part=f"int32_{n}") for n, v in enumerate(found)]
    total = whole[0]
    for n, value in enumerate(whole[1:]):
        total = node.emit(Add(), total, value, part=f"sum{n}")
    return total


def _sum_over(node: ImportNode, a: _Bytes, weights: _Weights, span: tuple[int, int], count: int) -> Value:
    """Emit sums over a range of rows of the weights, as floats."""
    start, end = span
    reals, w = a.reals, weights.integers[start:end]
    rank = len(reals.type.shape)
    if end - start < len(weights.integers):
        cut = Slice((*[0] * (rank - 1), start), (*reals.type.shape[:-1], end), (1,) * rank)
        reals = node.emit(cut, reals, part=f"columns{count}")
    total = node.emit(MatMul(), reals, _reals_of(node, w, f"weights{count}"), part=f"product{count}")
    if a.zero is not None:
        columns = node.part_constant(f"column_sums{count}", w.sum(axis=0).astype(np.float32))
        moved = node.emit(Mul(), a.zero, columns, part=f"moved{count}")
        total = node.emit(Sub(), total, moved, part=f"centred{count}")
    if np.any(weights.added):
        row = node.emit(ReduceSum(axes=(rank - 1,)), reals, part=f"row_sums{count}")
        if a.zero is not None:
            times = number(node, f"depth{count}", end - start)
            row = node.emit(
                Sub(), row, node.emit(Mul(), a.zero, times, part=f"zeros{count}"), part=f"rest{count}"
            )
        added = node.part_constant(f"added{count}", weights.added.astype(np.float32))
        total = node.emit(
            Add(), total, node.emit(Mul(), row, added, part=f"shift{count}"), part=f"total{count}"
        )
    return total


def _spans(weights: _Weights) -> list[tuple[int, int]]:
    """Return ranges of rows of weights [K, N] whose sums stay within `LARGEST_SUM` in every column."""
    spans, start = [], 0
    sums, added = np.zeros(weights.integers.shape[1], np.int64), np.abs(weights.added)
    for row, values in enumerate(np.abs(weights.integers) + added):
        if np.max(sums + values, initial=0) > LARGEST_SUM:
            spans.append((start, row))
            start, sums = row, np.zeros_like(sums)
        sums += values
    return [*spans, (start, len(weights.integers))]


def _bytes(node: ImportNode, index: int, zero_point: int) -> _Bytes:
    """Emit the first factor of a product of matrices, as reals of int8."""
    x = node.value(index)
    if x.type.is_quantized:
        return _Bytes(_without_zero(node, index, zero_point))
    form = _form_of(node, index)
    reals = _stored_as(node, _as_reals(node, index), form, str(index))
    return _Bytes(reals, _zero(node, index, zero_point) if node.has_input(zero_point) else None)


def _centred(node: ImportNode, index: int, zero_point: int) -> Value:
    """Emit an operand less its zero point, as int16 and then as the reals that these stand for."""
    if node.value(index).type.is_quantized:
        return _without_zero(node, index, zero_point)
    _form_of(node, index)
    real = _as_reals(node, index)
    if node.has_input(zero_point):
        real = node.emit(Sub(), real, _zero(node, index, zero_point), part=f"centred{index}")
    return _stored_as(node, real, _DIFFERENCES, str(index))


_SIGNED = Quantization.per_tensor(1.0, 0)
_UNSIGNED = Quantization.per_tensor(1.0, -128)
_DIFFERENCES = Quantization.per_tensor(1.0, 0, ElementType.INT16)
"""Forms of whole numbers: of int8, of uint8, and of differences between bytes."""


def _form_of(node: ImportNode, index: int) -> Quantization:
    """The form of an operand of bytes without parameters. Refuses others."""
    x = node.value(index)
    bytes_only = x.type.element in (ElementType.INT8, ElementType.UINT8)
    node.require(bytes_only, f"'{x.name}' is {x.type}; int8 and uint8 are supported")
    unsigned = x.type.element == ElementType.UINT8 or stored(node, index).shift
    return _UNSIGNED if unsigned else _SIGNED


def _zero(node: ImportNode, index: int, zero_point: int) -> Value:
    """The only zero point of an operand, as a real."""
    found = node.kind(zero_point).size
    node.require(found == 1, f"it has {found} zero points for input {index}; one is supported")
    return _as_reals(node, zero_point)


def _without_zero(node: ImportNode, index: int, zero_point: int) -> Value:
    """Emit the reals of quantized integers, which have the scale 1 and the zero point of the product."""
    x = node.value(index)
    quantization = x.type.quantization
    zero = _zero_points(node, zero_point, index)
    same = quantization is not None and quantization.axis is None and zero.size == 1
    fits = same and quantization == Quantization.per_tensor(1.0, int(zero.reshape(())))
    node.require(fits, f"it reads the integers of '{x.name}', which have a scale or another zero point")
    return node.emit(Dequantize(), x, part=f"real{index}")


def _as_reals(node: ImportNode, index: int) -> Value:
    """Emit integers of the model as floats; constants may be stored in another form than they have there."""
    value = node.value(index)
    if value.data is None:
        return node.emit(Cast(to=ElementType.FLOAT), value, part=f"cast{index}")
    data = np.asarray(value.data, np.int64) - stored(node, index).shift
    return node.part_constant(f"real{index}", data.astype(np.float32))


def _stored_as(node: ImportNode, real: Value, form: Quantization, part: str) -> Value:
    """Emit whole numbers as integers of this form, and as the reals that these stand for."""
    name, result = node.context.part_names(node.name, node.proto.output[0], f"whole_{part}")
    if real.data is None:
        integers = node.context.emit(name, Quantize(), [real], result, form)
    else:
        integers = constant(result, quantize_by(real.data, form), form)
    return node.emit(Dequantize(), integers, part=f"real_{part}")


def _matrix(node: ImportNode, index: int, zero_point: int) -> _Weights:
    """Read a constant matrix [K, N] and its zero points. Refuses others."""
    weights = _weights(node, index, zero_point, -1)
    node.require(weights.integers.ndim == 2, f"weights of {weights.integers.ndim} axes; a matrix has two")
    rows = node.kind().shape
    fits = bool(rows) and rows[-1] == len(weights.integers)
    node.require(fits, "its operands do not go together")
    return weights


def _weights(node: ImportNode, index: int, zero_point: int, axis: int) -> _Weights:
    """Read constant weights, whose channels lie along `axis`, and their zero points.

    Less its zero point a weight may need nine bits: then another number is taken from the channel.
    """
    w = node.value(index)
    node.require(w.data is not None, f"the weights '{w.name}' are computed; they must be constant")
    rank, zeros = len(w.type.shape), _zero_points(node, zero_point, index)
    node.require(rank > 0, f"the weights '{w.name}' have no axes")
    channels = w.type.shape[axis]
    node.require(zeros.size in (1, channels), f"{zeros.size} zero points do not fit {channels} channels")
    integers = np.asarray(w.data, np.int64)
    others = tuple(i for i in range(rank) if i != axis % rank)
    least, most = np.max(integers, others, initial=-128) - 127, np.min(integers, others, initial=127) + 128
    taken = np.clip(np.broadcast_to(zeros.reshape(-1), channels), least, most)
    along = [channels if i == axis % rank else 1 for i in range(rank)]
    return _Weights(integers - taken.reshape(along), taken - zeros.reshape(-1))


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


RULES: dict[str, ImportRule] = {
    "ConvInteger": ImportRule(import_conv_integer, newest=10, reads_unsigned=True),
    "MatMulInteger": ImportRule(import_matmul_integer, newest=10, reads_unsigned=True),
}

CONTRIBUTED: dict[str, ImportRule] = {
    "DynamicQuantizeMatMul": ImportRule(import_dynamic_quantize_matmul, newest=1, reads_unsigned=True),
    "MatMulIntegerToFloat": ImportRule(import_matmul_integer_to_float, newest=1, reads_unsigned=True),
}
"""Operators of onnxruntime's own domain, com.microsoft."""
