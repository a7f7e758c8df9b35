"""int8 arithmetic in fixed point (rule 10 of the numeric contract) as ONNX nodes, exactly.

Sums are ConvInteger, MatMulInteger or int64 arithmetic. One function of the model brings them to another
scale:

    FixedPointProduct(total, digits, up, down)

int64 of shapes that broadcast: `total` times `digits * up / (2^31 * down)`, rounded twice, where up and down
are powers of two. Runtimes put its nodes in the place of its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array, Quantization, Shape
from qglow.exporter.proto import OLDEST_OPSET, ProtoBuilder
from qglow.graph.graph import Node, Value
from qglow.numerics.fixed_point import FRACTION, split, sum_bits, sum_multipliers
from qglow.numerics.pool import average_multiplier, window_counts
from qglow.numerics.quantize import parameters
from qglow.numerics.requantize import multiplier, quantized_bounds, ratio

DOMAIN = "qglow"
PRODUCT = "FixedPointProduct"
EXACT_INTEGERS = 1 << 24
"""Below this float32 holds every integer."""


Steps = Callable[["FixedPointExport", Any], str]
"""Writes the nodes of an operator that give steps of its output's scale, int64, and returns their name."""


class FixedPointExport:
    """One node on its way out. Operands are found by the names of their integers and zero points."""

    def __init__(
        self, builder: ProtoBuilder, node: Node, integers: Callable[[Value], tuple[str, str]], offset: int
    ) -> None:
        """integers: names of the integers of a value and of their zero point, both as the model has them.

        offset: what the model adds to int8 activations.
        """
        self.builder, self.node, self.offset = builder, node, offset
        self.integers = integers

    def write(self, steps: Steps, result: str) -> None:
        """Write the nodes that give the integers of the output under this name; `steps` of the operator."""
        self._place(steps(self, self.node.operator), result)

    @property
    def scale(self) -> Quantization:
        """The parameters of the output."""
        return self.of(self.node.output)

    def of(self, value: Value | None) -> Quantization:
        """The parameters of an integer operand."""
        assert value is not None and value.type.quantization is not None
        return value.type.quantization

    def operand(self, index: int) -> Value:
        """A required operand."""
        value = self.node.inputs[index]
        assert value is not None
        return value

    def emit(self, op_type: str, what: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Write a node with a result of its own."""
        result = self.builder.fresh(f"{self.node.output.name}__{what}")
        return self.builder.node(op_type, f"{self.node.name}__{what}", inputs, result, **attributes)

    def whole(self, what: str, values: Any) -> str:
        """An int64 constant."""
        return self.builder.constant(f"{self.node.name}__{what}", np.asarray(values, np.int64))

    def cast(self, name: str, what: str) -> str:
        """The integers of a tensor as int64."""
        return self.emit("Cast", what, [name], to=onnx.TensorProto.INT64)

    def centred(self, index: int) -> str:
        """An operand less its zero point, int64."""
        integers, zero = (self.cast(name, f"{index}_{i}") for i, name in enumerate(self._named(index)))
        return self.emit("Sub", f"{index}_centred", [integers, zero])

    def _named(self, index: int) -> tuple[str, str]:
        return self.integers(self.operand(index))

    def product(self, what: str, total: str, factor: Any) -> str:
        """Bring an int64 to another scale; the multipliers broadcast against it."""
        self.builder.function(_product())
        digits, exponent = split(factor)
        up, down = (np.int64(1) << np.clip(sign * exponent, 0, FRACTION) for sign in (1, -1))
        given = [self.whole(f"{what}_{n}", v) for n, v in (("digits", digits), ("up", up), ("down", down))]
        return self.emit(PRODUCT, what, [total, *given], domain=DOMAIN)

    def sums(self, op_type: str, w_zero: str = "", **attributes: Any) -> str:
        """Exact int32 sums of products of both operands as int64."""
        (left, zero), (right, _) = self._named(0), self._named(1)
        total = self.emit(op_type, "sums", [left, right, zero, w_zero], **attributes)
        return self.cast(total, "wide")

    def with_bias(self, total: str, axes: int) -> str:
        """Sums plus the int32 bias, whose channels come before so many axes."""
        bias = self.node.operand("bias")
        if bias is None or bias.data is None:
            return total
        shaped = self.whole("bias", bias.data.reshape(-1, *([1] * axes)))
        return self.emit("Add", "biased", [total, shaped])

    def alike(self, index: int) -> str:
        """An operand as an integer of the output's scale, int64, with its zero point, within the type."""
        factor = ratio(self.of(self.operand(index)).scale, self.scale.scale)
        steps = self.product(f"{index}_rescaled", self.centred(index), factor)
        return self._within(steps, f"{index}_placed", self.scale.smallest, self.scale.largest)

    def _within(self, steps: str, what: str, low: int, high: int) -> str:
        placed = self.emit("Add", what, [steps, self.whole(f"{what}_zero", self.scale.zero_point)])
        bounds = [self.whole(f"{what}_{n}", value) for n, value in (("low", low), ("high", high))]
        return self.emit("Clip", f"{what}_clipped", [placed, *bounds])

    def _place(self, steps: str, result: str) -> None:
        """Add the zero point, clamp to the output's bounds, and narrow to the model's type."""
        low, high = self.node.operator.bounds
        clipped = self._within(steps, "placed", *quantized_bounds(low, high, self.scale))
        kind = onnx.TensorProto.INT8
        if self.offset:
            clipped = self.emit("Add", "moved", [clipped, self.whole("offset", self.offset)])
            kind = onnx.TensorProto.UINT8
        self.builder.node("Cast", f"{self.node.name}__narrow", [clipped], result, to=kind)


def convolution(out: FixedPointExport, op: Any) -> str:
    """Sums of windows with a multiplier for each channel."""
    x, w = out.operand(0), out.operand(1)
    window = {"strides": list(op.strides), "pads": list(op.pads), "dilations": list(op.dilations)}
    total = out.with_bias(out.sums("ConvInteger", "", group=op.group, **window), 2)
    scales = parameters(out.of(w))[0].reshape(-1, 1, 1)
    return out.product("scaled", total, multiplier(out.of(x).scale, scales, out.scale.scale))


def gemm(out: FixedPointExport, op: Any) -> str:
    """Sums of rows with a multiplier for each column."""
    x, scales = out.operand(0), parameters(out.of(out.operand(1)))[0]
    total = out.with_bias(out.sums("MatMulInteger"), 0)
    return out.product("scaled", total, multiplier(out.of(x).scale, scales, out.scale.scale))


def matmul(out: FixedPointExport, op: Any) -> str:
    """Sums of products of two activations."""
    a, b = out.operand(0), out.operand(1)
    scales = parameters(out.of(b))[0]
    total = out.sums("MatMulInteger", out.integers(b)[1])
    return out.product("scaled", total, multiplier(out.of(a).scale, scales, out.scale.scale))


def sum_or_difference(out: FixedPointExport, op: Any) -> str:
    """Both operands moved up, brought to a common scale and added or subtracted."""
    lhs, rhs = (out.of(out.operand(index)) for index in (0, 1))
    bits = sum_bits(lhs, rhs)
    *factors, last = sum_multipliers(lhs.scale, rhs.scale, out.scale.scale, bits)
    step = out.whole("step", 1 << bits)
    parts = []
    for index, factor in enumerate(factors):
        moved = out.emit("Mul", f"{index}_moved", [out.centred(index), step])
        parts.append(out.product(f"{index}_scaled", moved, factor))
    return out.product("scaled", out.emit(op.name, "sum", parts), last)


def product_of_two(out: FixedPointExport, op: Any) -> str:
    """The exact product, rescaled once."""
    lhs, rhs = (out.of(out.operand(index)) for index in (0, 1))
    total = out.emit("Mul", "product", [out.centred(0), out.centred(1)])
    return out.product("scaled", total, multiplier(lhs.scale, rhs.scale, out.scale.scale))


def rescale(out: FixedPointExport, op: Any) -> str:
    """Integers of another scale, as clamps have them too."""
    return out.product("scaled", out.centred(0), ratio(out.of(out.operand(0)).scale, out.scale.scale))


def _mean(out: FixedPointExport, axes: Sequence[int], keeps: bool) -> str:
    """The exact sum over axes, times the scale divided by the number of summands."""
    x = out.operand(0)
    count = np.prod([x.type.shape[axis] for axis in axes], dtype=np.int64)
    inputs = [out.centred(0), out.whole("axes", axes)]
    total = out.emit("ReduceSum", "sums", inputs, keepdims=int(keeps))
    return out.product("scaled", total, average_multiplier(out.of(x), out.scale, np.asarray(count)))


def mean(out: FixedPointExport, op: Any) -> str:
    """The mean over axes."""
    keeps = len(out.node.output.type.shape) == len(out.operand(0).type.shape)
    return _mean(out, op.axes, keeps)


def global_mean(out: FixedPointExport, op: Any) -> str:
    """The mean over all pixels."""
    return _mean(out, range(2, len(out.operand(0).type.shape)), True)


def window_means(out: FixedPointExport, op: Any) -> str:
    """Sums of windows as a convolution with ones; every position has a multiplier of its own.

    float32 holds the sums exactly. Raises UnsupportedError for windows in which it might not.
    """
    x = out.operand(0)
    how = op.ceil_mode, op.count_include_pad, op.dilations
    counts = window_counts(x.type.shape, op.kernel, op.strides, op.pads, *how)
    shape = out.node.output.type.shape
    pads = [*op.pads[:2], *_ends(op, x.type.shape[2:], shape[2:])]
    most = (out.of(x).largest - out.of(x).smallest) * op.kernel[0] * op.kernel[1]
    if most >= EXACT_INTEGERS:
        raise UnsupportedError(
            f"node '{out.node.name}': ONNX has no exact form of means of {op.kernel} in fixed point; take "
            "requantization float for it"
        )
    ones = out.builder.constant(f"{out.node.name}__ones", np.ones((shape[1], 1, *op.kernel), np.float32))
    window = {"strides": list(op.strides), "pads": pads, "dilations": list(op.dilations)}
    reals = out.emit("Cast", "reals", [out.centred(0)], to=onnx.TensorProto.FLOAT)
    total = out.emit("Conv", "sums", [reals, ones], group=shape[1], **window)
    return out.product("scaled", out.cast(total, "wide"), average_multiplier(out.of(x), out.scale, counts))


def _ends(op: Any, image: Shape, result: Shape) -> list[int]:
    """Padding at the ends with which a convolution has as many positions."""
    ends = []
    for axis in (0, 1):
        reach = (result[axis] - 1) * op.strides[axis] + op.dilations[axis] * (op.kernel[axis] - 1) + 1
        ends.append(max(op.pads[axis + 2], reach - image[axis] - op.pads[axis]))
    return ends


def extremum(out: FixedPointExport, op: Any) -> str:
    """The larger or smaller of both, at the scale of the result."""
    return _without_zero(out, out.emit(op.name, "chosen", [out.alike(0), out.alike(1)]))


def where(out: FixedPointExport, op: Any) -> str:
    """One of two by a condition, at the scale of the result."""
    condition = out.operand(0).name
    return _without_zero(out, out.emit("Where", "chosen", [condition, out.alike(1), out.alike(2)]))


def _without_zero(out: FixedPointExport, name: str) -> str:
    return out.emit("Sub", "steps", [name, out.whole("zero", out.scale.zero_point)])


def _product() -> onnx.FunctionProto:
    """The function's nodes."""
    constants: dict[str, int] = {"least": -(2**31), "most": 2**31 - 1, "half": 2**30, "unit": 2**31}
    constants |= {"zero": 0, "one": 1, "two": 2}
    nodes = [_constant(name, np.array(value, np.int64)) for name, value in constants.items()]
    steps = (
        ("Mul", "risen", "total", "up"),
        ("Clip", "moved", "risen", "least", "most"),
        ("Mul", "exact", "moved", "digits"),
        ("Add", "nearly", "exact", "half"),
        ("Mod", "below", "nearly", "unit"),
        ("Sub", "units", "nearly", "below"),
        ("Div", "high", "units", "unit"),
        ("Mod", "rest", "high", "down"),
        ("Sub", "parts", "high", "rest"),
        ("Div", "floor", "parts", "down"),
        ("Sub", "mask", "down", "one"),
        ("Div", "middle", "mask", "two"),
        ("Less", "negative", "high", "zero"),
    )
    nodes += [helper.make_node(op, list(inputs), [result]) for op, result, *inputs in steps]
    nodes += [
        helper.make_node("Cast", ["negative"], ["added"], to=onnx.TensorProto.INT64),
        helper.make_node("Add", ["middle", "added"], ["threshold"]),
        helper.make_node("Greater", ["rest", "threshold"], ["above"]),
        helper.make_node("Cast", ["above"], ["upwards"], to=onnx.TensorProto.INT64),
        helper.make_node("Add", ["floor", "upwards"], ["result"]),
    ]
    imports = [helper.make_opsetid("", OLDEST_OPSET)]
    given = ["total", "digits", "up", "down"]
    return helper.make_function(DOMAIN, PRODUCT, given, ["result"], nodes, imports)


def _constant(name: str, value: Array) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))
