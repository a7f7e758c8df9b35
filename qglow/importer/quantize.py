"""Import of QuantizeLinear and DequantizeLinear, and what operators on integers need of both.

https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html, onnx__DequantizeLinear.html

Integers are int8 or int16 in the graph. uint8 ones of a model are stored 128 less, uint16 ones 32768 less,
and so are their zero points; that of int16 is 0.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from qglow.core.types import Array, ElementType, Quantization
from qglow.graph.graph import Value, constant
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul, Sub
from qglow.graph.ops.functions import Round
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.graph.ops.shape import Cast
from qglow.importer.blocks import import_blocks
from qglow.importer.node import Broken, ImportNode, ImportRule
from qglow.importer.tensors import QUANTIZED, Stored, element_name
from qglow.numerics.quantize import dequantize, quantize_by

PLAIN: dict[Stored, ElementType] = {
    QUANTIZED[TensorProto.INT8]: ElementType.INT8,
    QUANTIZED[TensorProto.UINT8]: ElementType.UINT8,
    QUANTIZED[TensorProto.INT16]: ElementType.INT16,
    QUANTIZED[TensorProto.UINT16]: ElementType.UINT16,
}
"""Types of integers without parameters."""
ZERO = "the zero point"


def import_quantize(node: ImportNode) -> None:
    """Import QuantizeLinear as a node with one scale, or as constants, which may have one a channel.

    Computed values of several scales and one zero point of 8 bits are divided by the scales and have the
    scale 1. Other several scales, and 16 bits with a zero point, give plain integers by arithmetic.
    """
    _check_plain(node)
    x, axis, kind = node.value(0), _axis(node), _result_kind(node)
    if not x.type.is_float:
        raise Broken(f"its input '{x.name}' is {x.type}, it must be float")
    if x.data is None and _is_apart_by_scales(node, kind):
        _quantize_by_one_scale(node, x, kind)
        return
    if x.data is None and _is_beyond_types(node, kind):
        _quantize_to_numbers(node, x, kind)
        return
    node.require(_block(node) == 0, "block_size: constants are not quantized in blocks")
    quantization = read_parameters(node, x, 1, 2, axis, kind)
    result = node.proto.output[0]
    if kind.unsigned:
        node.context.unsigned.add(result)
    if x.data is not None:
        node.results[result] = constant(result, quantize_by(x.data, quantization), quantization)
        return
    emit_quantize(node, x, quantization)


def import_dequantize(node: ImportNode) -> None:
    """Import DequantizeLinear. Constants keep their integers, except int32 ones, which are biases."""
    x, axis = node.value(0), _axis(node)
    if _block(node) and x.data is not None:
        import_blocks(node)
        return
    _check_plain(node)
    kind = node.integer("output_dtype", 0)
    node.require(
        kind in (0, TensorProto.FLOAT), f"its result is {element_name(kind)}; float (32 bit) is supported"
    )
    if x.type.element is ElementType.INT32:
        node.constant(bias(node, 0, *_int32_parameters(node, axis)))
        return
    if x.type.is_plain_integer and x.data is None:
        _dequantize_numbers(node, x)
        return
    node.require(_block(node) == 0, f"block_size: '{x.name}' has other parameters than blocks")
    if x.type.is_quantized and x.data is None and not _has_one_finite_scale(node):
        _dequantize_by_one_scale(node, x)
        return
    quantization = read_parameters(node, x, 1, 2, axis, stored(node, 0))
    node.emit(Dequantize(), with_parameters(node, x, quantization))


def _is_apart_by_scales(node: ImportNode, kind: Stored) -> bool:
    """Whether results of 8 bits have several scales or an infinite one, and one zero point."""
    if _block(node) or kind.element is not ElementType.INT8 or _has_one_finite_scale(node):
        return False
    zeros = _zero_points(node, 2, kind)
    return bool(np.all(zeros == zeros.flat[0]))


def _quantize_by_one_scale(node: ImportNode, x: Value, kind: Stored) -> None:
    """Quantize x / scales with the scale 1: the same integers, in a type that has one scale."""
    scales = node.part_constant("scale", _spread(node, x, read_scales(node, 1, endless=True)))
    zero = int(_zero_points(node, 2, kind).flat[0])
    divided = node.emit(Div(), x, scales, part="divided")
    if kind.unsigned:
        node.context.unsigned.add(node.proto.output[0])
    emit_quantize(node, divided, Quantization.per_tensor(1.0, zero))


def _dequantize_by_one_scale(node: ImportNode, x: Value) -> None:
    """Multiply what has the scale 1 by scales. Refuses integers of another scale or zero point.

    The zero point times an infinite scale is NaN.
    """
    scales = _spread(node, x, read_scales(node, 1, endless=True))
    zeros = _zero_points(node, 2, stored(node, 0))
    found = x.type.quantization
    assert found is not None
    same = found.axis is None and found.scale == 1.0 and bool(np.all(zeros == found.zero_point))
    node.require(same, f"it reads '{x.name}' with other parameters than it was quantized with")
    real = node.emit(Dequantize(), x, part="real")
    node.emit(Mul(), real, node.part_constant("scale", scales))


def _quantize_to_numbers(node: ImportNode, x: Value, kind: Stored) -> None:
    """Quantize to plain integers: x / scale, rounded, plus the zero point, within the type's range."""
    plain = PLAIN[kind]
    bounds = np.iinfo(plain.dtype)
    scale = node.part_constant("scale", _spread(node, x, read_scales(node, 1)))
    result = node.emit(Round(), node.emit(Div(), x, scale, part="divided"), part="rounded")
    if node.has_input(2):
        zeros = _spread(node, x, _plain_zeros(node, kind)).astype(np.float32)
        result = node.emit(Add(), result, node.part_constant("zero", zeros), part="moved")
    result = node.emit(Clip(lo=float(bounds.min), hi=float(bounds.max)), result, part="bounded")
    node.emit(Cast(to=plain), result)


def _dequantize_numbers(node: ImportNode, x: Value) -> None:
    """Dequantize computed integers that are plain numbers: float(x - zero point) * scale."""
    real = node.emit(Cast(to=ElementType.FLOAT), x, part="real")
    if node.has_input(2):
        zeros = _spread(node, x, _plain_zeros(node, stored(node, 2))).astype(np.float32)
        real = node.emit(Sub(), real, node.part_constant("zero", zeros), part="centred")
    node.emit(Mul(), real, node.part_constant("scale", _spread(node, x, read_scales(node, 1))))


def _is_beyond_types(node: ImportNode, kind: Stored) -> bool:
    """Whether results have several scales, or 16 bits and another zero point than quantized types have."""
    if _block(node) or read_scales(node, 1).size > 1:
        return True
    return kind.element is ElementType.INT16 and node.has_input(2) and bool(np.any(node.array(2, ZERO)))


def _plain_zeros(node: ImportNode, kind: Stored) -> Array:
    """Zero points as the model has them."""
    return np.asarray(node.array(2, ZERO), np.int64) - (kind.shift if stored(node, 2).unsigned else 0)


def _spread(node: ImportNode, x: Value, parameters: Array) -> Array:
    """Parameters in a shape that broadcasts to that of x: one, several along the axis, or one a block.

    Raises Broken where they do not fit x.
    """
    shape, block = x.type.shape, _block(node)
    rank, axis = len(shape), _axis(node)
    if parameters.size == 1 and not block:
        return parameters.reshape(())
    if not -rank <= axis < rank:
        raise Broken(f"axis {axis} is not one of '{x.name}' {list(shape)}")
    axis %= rank
    if block:
        wanted = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
        if parameters.shape != wanted:
            raise Broken(f"parameters {list(parameters.shape)} do not fit blocks of {block}: {list(wanted)}")
        return np.repeat(parameters, block, axis)[(slice(None),) * axis + (slice(shape[axis]),)]
    if parameters.shape != (shape[axis],):
        raise Broken(f"{parameters.size} parameters do not fit axis {axis} of '{x.name}' {list(shape)}")
    return parameters.reshape([-1 if place == axis else 1 for place in range(rank)])


def emit_quantize(node: ImportNode, x: Value, quantization: Quantization, name: str | None = None) -> None:
    """Quantize a computed float value as the node's output. One scale is supported.

    name: of the graph's node (default: the node's own).
    """
    node.require(
        quantization.axis is None,
        f"it quantizes '{x.name}', which is computed, with one scale a channel; constants may be so",
    )
    result = node.proto.output[0]
    node.results[result] = node.context.emit(name or node.name, Quantize(), [x], result, quantization)


def with_parameters(node: ImportNode, x: Value, quantization: Quantization) -> Value:
    """Integers that are known to have these parameters; CannotImport where they have others."""
    if x.type.is_quantized:
        same = x.type.quantization == quantization
        node.require(same, f"it reads '{x.name}' with other parameters than it was quantized with")
        return x
    fits = x.type.element is quantization.element
    node.require(fits, f"'{x.name}' is {x.type}; integers of 8 and 16 bits are supported")
    if x.data is None:
        node.refuse(f"'{x.name}' is computed from integers without parameters")
    known, key = node.context.integers, (x.name, quantization)
    if key not in known:
        fresh = all(name != x.name for name, _ in known)
        name = x.name if fresh else node.part_constant("integers", x.data).name
        known[key] = constant(name, x.data, quantization)
    return known[key]


def read_parameters(
    node: ImportNode, x: Value, scale: int, zero_point: int, axis: int, kind: Stored
) -> Quantization:
    """Parameters of `x` from the inputs of these numbers, for integers of this kind.

    Raises Broken for a scale that is not positive and finite, for one of another length than the axis
    has, and for a zero point that is no integer of the type; CannotImport for one of 16 bits off the middle.
    """
    scales = read_scales(node, scale)
    zeros = _zero_points(node, zero_point, kind)
    if scales.size == 1:
        if zeros.size != 1:
            raise Broken(f"one scale, but {zeros.size} zero points")
        return Quantization.per_tensor(float(scales.reshape(())), int(zeros.reshape(())), kind.element)
    node.require(scales.ndim == 1, f"scales of shape {list(scales.shape)}: blocks are not supported")
    rank = len(x.type.shape)
    if not -rank <= axis < rank or x.type.shape[axis] != scales.size:
        raise Broken(f"{scales.size} scales do not fit axis {axis} of '{x.name}' {list(x.type.shape)}")
    if zeros.size not in (1, scales.size):
        raise Broken(f"{scales.size} scales, but {zeros.size} zero points")
    zeros = np.broadcast_to(zeros.reshape(-1), scales.shape)
    return Quantization.per_channel(scales, axis % rank, zeros, kind.element)


def _has_one_finite_scale(node: ImportNode) -> bool:
    scales = read_scales(node, 1, endless=True)
    return scales.size == 1 and bool(np.isfinite(scales).all())


def read_scales(node: ImportNode, index: int, endless: bool = False) -> Array:
    """The scales in this input, float32. Raises Broken where one is not positive and finite.

    endless: whether they may be infinite. Quantizers write that for a range from the least to the largest
    float, such as that of a mask.
    """
    name, scales = node.value(index).name, node.array(index, "the scale")
    node.require(scales.dtype == np.float32, f"the scale '{name}' is {scales.dtype}; float32 is supported")
    if not scales.size:
        raise Broken(f"the scale '{name}' is empty")
    for scale in scales.reshape(-1):
        if not (scale > 0.0 and (endless or np.isfinite(scale))):
            raise Broken(f"the scale '{name}' holds {scale}; a scale is positive and finite")
    return scales


def bias(node: ImportNode, index: int, scales: Array, axis: int) -> Array:
    """float32 of constant int32 sums at these scales; several lie along `axis`."""
    data = node.array(index, "an int32 tensor")
    if scales.size == 1:
        return dequantize(data, scales.reshape(()), 0)
    if not -data.ndim <= axis < data.ndim or data.shape[axis] != scales.size:
        raise Broken(f"{scales.size} scales do not fit axis {axis} of {list(data.shape)}")
    return dequantize(data, scales.reshape(-1), np.zeros(scales.size, np.int64), axis)


def stored(node: ImportNode, index: int) -> Stored:
    """Form in which the model stores the integers of an input."""
    value = node.value(index)
    wide = value.type.element is ElementType.INT16
    return Stored(ElementType.INT16 if wide else ElementType.INT8, value.name in node.context.unsigned)


def _zero_points(node: ImportNode, index: int, kind: Stored) -> Array:
    if not node.has_input(index):
        zeros = np.array(kind.shift, np.int64)
    else:
        name, zeros = node.value(index).name, node.array(index, ZERO)
        if zeros.dtype != kind.element.dtype or stored(node, index) != kind:
            found = stored(node, index) if zeros.dtype in (np.int8, np.int16) else zeros.dtype
            raise Broken(f"the zero point '{name}' is {found}, but the integers are {kind}")
        if not zeros.size:
            raise Broken(f"the zero point '{name}' is empty")
    if kind.element is ElementType.INT16 and np.any(zeros):
        # Kernels of int16 have none: of 16 bits one can be spared.
        off, middle = int(zeros[zeros != 0][0]) - kind.shift, -kind.shift
        node.refuse(
            f"its {kind} integers have zero point {off}, {middle} is supported; quantize them symmetrically"
        )
    return zeros


def _int32_parameters(node: ImportNode, axis: int) -> tuple[Array, int]:
    if node.has_input(2):
        zeros = node.array(2, "the zero point")
        if zeros.dtype != np.int32 or np.any(zeros):
            raise Broken(f"the zero point '{node.value(2).name}' of int32 must be int32 and 0")
    return read_scales(node, 1), axis


def _axis(node: ImportNode) -> int:
    return node.integer("axis", 1)


def _block(node: ImportNode) -> int:
    """Elements along the axis that share parameters; 0 where all do."""
    block = node.integer("block_size", 0)
    if block < 0:
        raise Broken(f"block_size {block} is negative")
    return block


def _result_kind(node: ImportNode) -> Stored:
    """Type of a QuantizeLinear's result: that of its zero point, else output_dtype, else uint8."""
    number = node.integer("output_dtype", 0)
    given = QUANTIZED.get(number)
    kinds = ", ".join(str(kind) for kind in QUANTIZED.values())
    node.require(not number or given is not None, f"it gives {element_name(number)}; supported are {kinds}")
    if not node.has_input(2):
        return given or QUANTIZED[TensorProto.UINT8]
    found = stored(node, 2)
    if given not in (None, found):
        raise Broken(f"output_dtype is {given}, its zero point '{node.value(2).name}' is not")
    return found


def _check_plain(node: ImportNode) -> None:
    """Refuse what only newer element types have: divisions in another precision."""
    kind = node.integer("precision", 0)
    node.require(kind in (0, TensorProto.FLOAT), f"precision {element_name(kind)}; float is supported")
    node.ignore("saturate")


RULES: dict[str, ImportRule] = {
    "DequantizeLinear": ImportRule(import_dequantize, newest=28, reads_unsigned=True),
    "QuantizeLinear": ImportRule(import_quantize, newest=28, reads_unsigned=True),
}

CONTRIBUTED: dict[str, ImportRule] = {
    "DequantizeLinear": ImportRule(import_dequantize, newest=1, reads_unsigned=True),
    "QuantizeLinear": ImportRule(import_quantize, newest=1, reads_unsigned=True),
}
"""The same in onnxruntime's domain, com.microsoft: its tools write them for 16 bits below opset 21."""
