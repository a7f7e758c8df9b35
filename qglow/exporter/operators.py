"""One export function an operator: its ONNX node, without fused bounds and without Q and DQ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from qglow.core.errors import InternalError, UnsupportedError
from qglow.core.types import ElementType
from qglow.exporter import blocks, elementwise, fixed_point, normalization, ranking, recurrence, reduce, rows
from qglow.exporter.export import Export
from qglow.exporter.proto import ONNX_TYPES, ProtoBuilder
from qglow.graph.graph import Node
from qglow.graph.operator import Operator
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Clip, Mul, Relu, Sub
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.movement import Expand, Gather, GatherElements, Pad, Slice
from qglow.graph.ops.normalization import Affine, BatchNormalization
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from qglow.graph.ops.quantize import Rescale
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.ops.resize import Resize, ResizeNearest
from qglow.graph.ops.selection import Max, Min, Where
from qglow.graph.ops.shape import Cast, ChannelShuffle, Concat, Identity, Reshape, Shape, Transpose
from qglow.graph.ops.softmax import LogSoftmax, Softmax
from qglow.graph.rule_tables import fills

FARTHEST = np.iinfo(np.int64)
"""Bounds of a Slice that reach beyond both ends of an axis of any size."""

Op = TypeVar("Op", bound=Operator)
ExportRule = Callable[[Op, Export], None]
"""Writes the ONNX nodes of a node, whose operator is the first argument."""


def clamp(builder: ProtoBuilder, name: str, value: str, bounds: tuple[float, float], output: str) -> str:
    """A Relu or a Clip of `value` to `bounds`."""
    low, high = bounds
    if low == 0.0 and math.isinf(high):
        return builder.node("Relu", name, [value], output)
    inputs = [value, "", ""]
    for index, (what, bound) in enumerate((("min", low), ("max", high)), start=1):
        if math.isfinite(bound):
            inputs[index] = builder.constant(f"{name}__{what}", np.array(bound, np.float32))
    return builder.node("Clip", name, inputs, output)


def _conv(op: Conv, out: Export) -> None:
    kernel = out.node.input_types()[1]
    assert kernel is not None
    out.emit(
        "Conv",
        kernel_shape=list(kernel.shape[2:]),
        strides=list(op.strides),
        pads=list(op.pads),
        dilations=list(op.dilations),
        group=op.group,
    )


def _max_pool(op: MaxPool, out: Export) -> None:
    out.emit(
        "MaxPool",
        kernel_shape=list(op.kernel),
        strides=list(op.strides),
        pads=list(op.pads),
        dilations=list(op.dilations),
        ceil_mode=int(op.ceil_mode),
    )


def _softmax(op: Softmax, out: Export) -> None:
    if not op.masked_to_zero:
        out.emit("Softmax", axis=op.axis)
        return
    builder, name = out.builder, out.node.name
    shares = builder.node("Softmax", name, out.inputs, builder.fresh(f"{out.output}__shares"), axis=op.axis)
    masked = builder.node("IsNaN", f"{name}__masked", [shares], builder.fresh(f"{out.output}__masked"))
    builder.node("Where", f"{name}__guarded", [masked, out.number("zero", 0.0), shares], out.output)


def _average_pool(op: AveragePool, out: Export) -> None:
    # onnxruntime finds its int8 form only where dilations are left out.
    dilations = {} if op.dilations == (1, 1) else {"dilations": list(op.dilations)}
    out.emit(
        "AveragePool",
        kernel_shape=list(op.kernel),
        strides=list(op.strides),
        pads=list(op.pads),
        ceil_mode=int(op.ceil_mode),
        count_include_pad=int(op.count_include_pad),
        **dilations,
    )


def _clip(op: Clip, out: Export) -> None:
    clamp(out.builder, out.node.name, out.inputs[0], (op.lo, op.hi), out.output)


def _batch_normalization(op: BatchNormalization, out: Export) -> None:
    out.emit("BatchNormalization", epsilon=op.epsilon)


def _affine(op: Affine, out: Export) -> None:
    """A BatchNormalization with mean 0, variance 1 and epsilon 0: scale and shift stay as they are."""
    channels = out.node.output.type.shape[1]
    mean = out.builder.constant(f"{out.node.name}__mean", np.zeros(channels, np.float32))
    variance = out.builder.constant(f"{out.node.name}__variance", np.ones(channels, np.float32))
    out.emit("BatchNormalization", mean, variance, epsilon=0.0)


def _channel_shuffle(op: ChannelShuffle, out: Export) -> None:
    """Export ChannelShuffle as a Transpose between two Reshapes."""
    shape = out.node.output.type.shape
    names = [out.builder.fresh(f"{out.output}__{part}") for part in ("groups", "swapped")]
    apart, whole = out.integers("apart", op.apart(shape)), out.integers("whole", shape)
    perm = [0, 2, 1, *range(3, len(shape) + 1)]
    out.builder.node("Reshape", f"{out.node.name}__groups", [out.inputs[0], apart], names[0], allowzero=1)
    out.builder.node("Transpose", f"{out.node.name}__swapped", [names[0]], names[1], perm=perm)
    out.builder.node("Reshape", out.node.name, [names[1], whole], out.output, allowzero=1)


def _slice(op: Slice, out: Export) -> None:
    """Export a slice of the axes of which it leaves something out; all of one that leaves out nothing."""
    x = out.node.input_types()[0]
    assert x is not None
    bounds = list(zip(op.starts, op.ends, op.steps, strict=True))
    cut = [axis for axis, size in enumerate(x.shape) if bounds[axis] != (0, size, 1)] or range(len(bounds))
    starts, ends, steps = ([bounds[axis][part] for axis in cut] for part in range(3))
    lists = [out.integers(name, values) for name, values in (("starts", starts), ("ends", ends))]
    out.emit("Slice", *lists, out.integers("axes", cut), out.integers("steps", steps))


def _gather(op: Gather, out: Export) -> None:
    """Export Gather; one that turns an axis around as the Slice that does so for any size."""
    x, indices = out.node.inputs
    assert x is not None and indices is not None
    extent = x.type.shape[op.axis]
    if extent < 2 or indices.data is None or not np.array_equal(indices.data, np.arange(extent)[::-1]):
        out.emit("Gather", axis=op.axis)
        return
    bounds = [("starts", FARTHEST.max), ("ends", FARTHEST.min), ("axes", op.axis), ("steps", -1)]
    lists = [out.integers(name, [value]) for name, value in bounds]
    out.builder.node("Slice", out.node.name, [out.inputs[0], *lists], out.output)


def _expand(op: Expand, out: Export) -> None:
    """Export Expand with size 1 for the axes that keep their size."""
    x = out.node.input_types()[0]
    assert x is not None
    known = (*([0] * (len(op.shape) - len(x.shape))), *x.shape)
    shape = [1 if size == own else size for size, own in zip(op.shape, known, strict=True)]
    out.emit("Expand", out.integers("shape", shape))


def _pad(op: Pad, out: Export) -> None:
    """Export a pad with a value of the type of x; one of quantized values is exported with real ones."""
    x = out.node.input_types()[0]
    assert x is not None
    more = [out.integers("pads", op.pads)]
    if op.mode == "constant":
        dtype = np.dtype(np.float32) if x.quantization is not None else x.element.dtype
        more.append(out.builder.constant(f"{out.node.name}__value", np.array(op.value).astype(dtype)))
    out.emit("Pad", *more, mode=op.mode)


def _resize_nearest(op: ResizeNearest, out: Export) -> None:
    if op.rounding == "floor_or_ceil":
        raise UnsupportedError(f"node '{out.node.name}': nearest neighbours of opset 10 have no later form")
    _resize(op, out, mode="nearest", nearest_mode=op.rounding)


def _interpolate(op: Resize, out: Export) -> None:
    roi = "" if not op.roi else out.builder.constant(f"{out.node.name}__roi", np.array(op.roi, np.float32))
    attributes: dict[str, Any] = {"mode": op.mode, "nearest_mode": op.rounding, "cubic_coeff_a": op.cubic}
    attributes |= {"exclude_outside": int(op.exclude_outside), "antialias": int(op.antialias)}
    _resize(op, out, roi, extrapolation_value=op.extrapolation, **attributes)


def _resize(op: Resize | ResizeNearest, out: Export, roi: str = "", **attributes: Any) -> None:
    """Export a resize by sizes or by scales, whichever determines the other; by scales if they are whole.

    Whole scales fit all sizes of x. Raises UnsupportedError if neither gives both.
    """
    x = out.node.input_types()[0]
    assert x is not None
    scales, extents = np.array(op.scales, np.float32), np.array(x.shape, np.float32)
    by_scales = np.array_equal(np.floor(extents * scales), op.sizes)
    by_sizes = np.array_equal(scales, np.array(op.sizes, np.float32) / extents)
    if by_sizes and not (by_scales and np.array_equal(scales, np.rint(scales))):
        inputs = [roi, "", out.integers("sizes", op.sizes)]
    elif by_scales:
        inputs = [roi, out.builder.constant(f"{out.node.name}__scales", scales)]
    else:
        raise UnsupportedError(
            f"node '{out.node.name}' ({op.name}): ONNX has no form for sizes {op.sizes} "
            f"with scales {op.scales}"
        )
    out.emit("Resize", *inputs, coordinate_transformation_mode=op.coordinates, **attributes)


def _plain(op_type: str) -> ExportRule[Any]:
    return lambda op, out: out.emit(op_type)


EXPORTS: dict[type[Operator], ExportRule[Any]] = {
    **blocks.EXPORTS,
    **elementwise.EXPORTS,
    **normalization.EXPORTS,
    **ranking.EXPORTS,
    **recurrence.EXPORTS,
    **reduce.EXPORTS,
    **rows.EXPORTS,
    Affine: _affine,
    AveragePool: _average_pool,
    BatchNormalization: _batch_normalization,
    Cast: lambda op, out: out.emit("Cast", to=ONNX_TYPES[op.to]),
    ChannelShuffle: _channel_shuffle,
    Clip: _clip,
    Concat: lambda op, out: out.emit("Concat", axis=op.axis),
    Conv: _conv,
    Expand: _expand,
    Gather: _gather,
    GatherElements: lambda op, out: out.emit("GatherElements", axis=op.axis),
    Gemm: _plain("Gemm"),
    GlobalAveragePool: _plain("GlobalAveragePool"),
    Identity: _plain("Identity"),
    MatMul: _plain("MatMul"),
    MaxPool: _max_pool,
    Pad: _pad,
    Reshape: lambda op, out: out.emit("Reshape", out.integers("shape", op.shape), allowzero=1),
    Resize: _interpolate,
    ResizeNearest: _resize_nearest,
    Shape: _plain("Shape"),
    Slice: _slice,
    LogSoftmax: lambda op, out: out.emit("LogSoftmax", axis=op.axis),
    Softmax: _softmax,
    Transpose: lambda op, out: out.emit("Transpose", perm=list(op.perm)),
}


FIXED_POINT: dict[type[Operator], fixed_point.Steps] = {
    Add: fixed_point.sum_or_difference,
    AveragePool: fixed_point.window_means,
    Clip: fixed_point.rescale,
    Conv: fixed_point.convolution,
    Gemm: fixed_point.gemm,
    GlobalAveragePool: fixed_point.global_mean,
    MatMul: fixed_point.matmul,
    Max: fixed_point.extremum,
    Min: fixed_point.extremum,
    Mul: fixed_point.product_of_two,
    ReduceMean: fixed_point.mean,
    Relu: fixed_point.rescale,
    Rescale: fixed_point.rescale,
    Sub: fixed_point.sum_or_difference,
    Where: fixed_point.where,
}
"""int8 operators that bring sums to the scale of their result, as integer arithmetic."""


def steps_in_fixed_point(node: Node) -> fixed_point.Steps | None:
    """Return what brings integers to the scale of the result in fixed point; None where it does not."""
    known = node.output.type.quantization
    if known is None or not known.fixed_point:
        return None
    plain = (ElementType.BOOL, ElementType.INT32)  # conditions and biases
    given = [value.type for value in node.inputs if value is not None]
    is_integer = all(kind.is_quantized or kind.element in plain for kind in given)
    return FIXED_POINT.get(type(node.operator)) if is_integer else None


def exports(*operators: type[Op]) -> Callable[[ExportRule[Op]], ExportRule[Op]]:
    """Decorator: the function writes the ONNX nodes of these operators.

    Raises ValueError if one of them has an export rule already.
    """
    return fills(EXPORTS, operators, "export rules")


def export_operator(builder: ProtoBuilder, node: Node, inputs: Sequence[str], output: str) -> None:
    """Write the ONNX node of a graph node, without its fused bounds. Raises InternalError."""
    operator = node.operator
    if type(operator) not in EXPORTS:
        raise InternalError(f"{node} has no ONNX form")
    EXPORTS[type(operator)](operator, Export(builder, node, inputs, output))


def fused_bounds(operator: Operator) -> tuple[float, float]:
    """The clamp fused into an operator, as real numbers; infinite where there is none."""
    takes_bounds = not operator.clamps and operator.bounded(*operator.bounds) is not None
    return operator.bounds if takes_bounds else (-math.inf, math.inf)
