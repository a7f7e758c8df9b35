"""Arithmetic of elementwise operations on one vector, without loads and stores.

Any kernel that has operands in registers can use it: loops for one operation and for a stack of them do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qglow.instructions.operation import Operation
from qglow.instructions.ops.elementwise import (
    Affine,
    Clip,
    ElementAdd,
    ElementDiv,
    ElementMul,
    ElementPower,
    ElementSub,
    PRelu,
)
from qglow.instructions.ops.functions import FUNCTIONS
from qglow.instructions.ops.logic import Cast, Compare, Whole
from qglow.instructions.ops.memory import Splat, stored_value
from qglow.instructions.ops.quantize import (
    Dequantize,
    HighByte,
    Lookup,
    LowByte,
    Quantize,
    Requantize,
    Rescale,
)
from qglow.instructions.ops.selection import ElementMax, ElementMin, Select
from qglow.kernels.arithmetic.fixed_point import multiply_fixed
from qglow.kernels.arithmetic.functions import emit_function
from qglow.kernels.arithmetic.integers import emit_operation, emit_power, emit_quotient
from qglow.kernels.arithmetic.logic import emit_cast, emit_compare, emit_extremum, emit_select
from qglow.kernels.arithmetic.requantize import (
    IntegerRange,
    clamp_float,
    emit_affine_int8,
    emit_dequantize,
    emit_quantize,
    emit_requantize,
    emit_steps,
    fits_rounding,
    place_steps,
    round_to_integers,
    widen_centred,
)
from qglow.kernels.arithmetic.scalar import emit_scalar
from qglow.kernels.arithmetic.soft_float import add_in_integers, sums_in_integers
from qglow.kernels.elementwise.limits import largest_result, rescaled_limit, result_range
from qglow.kernels.emit.builder import F32, F64, I8, Number, PerCall, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.operand import Memory, is_int8_activation
from qglow.kernels.emit.parameter import one_scale
from qglow.kernels.tiles.interleaved import centred_floats, fills_registers, round_interleaved
from qglow.numerics.fixed_point import sum_bits, sum_multipliers
from qglow.numerics.requantize import multiplier, ratio
from qglow.numerics.scalar.clamps import prelu
from qglow.numerics.scalar.polynomials import power
from qglow.numerics.wide import LOW_ZERO, PLACE


@dataclass(frozen=True)
class Point:
    """Evaluation of one operation on one vector of `lanes` elements.

    memories: operands by name, for their types, scales and zero points.
    values: vectors of the operands that are read, by name.
    tables: addresses of constants that are not read element by element.
    proven: constants rule out results beyond int32, so rounding needs no float clamp.
    beside_function: whether the same loop evaluates a function, mostly many operations.
    """

    e: Emitter
    operation: Any
    memories: Mapping[str, Memory]
    values: Mapping[str, Value]
    tables: Mapping[str, Value]
    lanes: int
    proven: bool = False
    beside_function: bool = False

    @property
    def dest(self) -> Memory:
        """The result's memory."""
        return self.memories["dest"]

    @property
    def result(self) -> IntegerRange:
        """Zero point and bounds of an integer result."""
        return result_range(self.operation, self.dest)

    @property
    def interleaves(self) -> bool:
        """Whether all operands are int8 and fill whole registers.

        Such registers are widened and narrowed by interleaving, which saves moves across 128-bit parts.
        """
        kinds = [memory.type for memory in self.memories.values()]
        if not all(is_int8_activation(kind) for kind in kinds) or not fills_registers(self.e, self.lanes):
            return False
        return not self.dest.in_fixed_point

    @property
    def counts(self) -> bool:
        """Whether this is arithmetic of plain integers, which wrap around."""
        return self.dest.type.is_plain_integer

    def rescaled(self, name: str) -> Value:
        """Rescale an integer operand to the scale, the zero point and the bounds of `dest`."""
        memory = self.memories[name]
        factor = self.ratio(name)
        proven = fits_rounding(rescaled_limit(memory.type, self.dest.type))
        if self.result.fixed_point or not self.e.target.has_float_unit:
            return emit_requantize(self.e, self.centred(name), self.reals(factor), self.result, proven)
        if self.interleaves:
            return round_interleaved(self.e, self.steps(name, factor), self.result, proven)
        steps = emit_steps(self.e, self.values[name], memory.zero_point, factor)
        return round_to_integers(self.e, steps, self.result, proven, may_be_nan=False)

    def ratio(self, name: str) -> Number:
        """Scale of an operand divided by that of `dest`, in float32."""
        own, other = self.memories[name].scale, self.dest.scale
        return own / other if isinstance(own, PerCall) else float(ratio(own, other))

    def steps(self, name: str, factor: Number) -> list[Value]:
        """Compute `float32(q - zp) * factor` of an int8 operand that fills registers, interleaved."""
        centred = centred_floats(self.e, self.values[name], self.memories[name].zero_point)
        return [self.e.b.fmul(value, scalar(value.type, factor)) for value in centred]

    def centred(self, name: str) -> Value:
        """Integer operand as int32 less its zero point."""
        return widen_centred(self.e, self.values[name], self.memories[name].zero_point)

    def reals(self, number: Number) -> Value:
        """A float32 number in every lane."""
        return scalar(vec(F32, self.lanes), number)

    def alike(self, name: str) -> Value:
        """Operand with the scale and zero point of `dest`: rescaled where its own differ."""
        kind = self.memories[name].type
        if kind.quantization == self.dest.type.quantization:
            return self.values[name]
        return self.rescaled(name)

    def real(self, name: str) -> Value:
        """Operand as floats: dequantized where it holds integers."""
        memory = self.memories[name]
        if memory.is_float:
            return self.values[name]
        return emit_dequantize(self.e, self.values[name], memory.zero_point, memory.scale)

    def from_real(self, value: Value) -> Value:
        """Convert a float result to the type of `dest`: quantized for integers, else as it is, unclamped."""
        if self.dest.is_float:
            return value
        return emit_quantize(self.e, value, self.dest.scale, self.result, self.beside_function)

    def bounded(self, value: Value) -> Value:
        """Clamp a float result to the operation's bounds."""
        return clamp_float(self.e, value, self.operation.lo, self.operation.hi)


def _add(point: Point) -> Value:
    if point.counts:
        return point.e.b.add(point.values["lhs"], point.values["rhs"])
    return _combine(point, point.e.b.fadd)


def _sub(point: Point) -> Value:
    if point.counts:
        return point.e.b.sub(point.values["lhs"], point.values["rhs"])
    return _combine(point, point.e.b.fsub)


def _combine(point: Point, combine: Callable[[Value, Value], Value]) -> Value:
    if point.dest.is_float:
        return point.bounded(combine(point.values["lhs"], point.values["rhs"]))
    memories = {name: point.memories[name] for name in ("lhs", "rhs")}
    factors = {name: point.ratio(name) for name in memories}
    proven = fits_rounding(largest_result(point.operation, point.memories))
    if point.result.fixed_point:
        return _combine_fixed(point, point.e.b.add if combine == point.e.b.fadd else point.e.b.sub, proven)
    if not point.e.target.has_float_unit and sums_in_integers(*factors.values()) and _are_bytes(memories):
        centred = [(point.centred(name), factor) for name, factor in factors.items()]
        sign = 1 if combine == point.e.b.fadd else -1
        return place_steps(point.e, add_in_integers(point.e, *centred[0], *centred[1], sign), point.result)
    if point.interleaves:
        registers = [point.steps(name, factor) for name, factor in factors.items()]
        sums = [combine(*pair) for pair in zip(*registers, strict=True)]
        return round_interleaved(point.e, sums, point.result, proven)
    steps = [
        emit_steps(point.e, point.values[name], m.zero_point, factors[name]) for name, m in memories.items()
    ]
    return round_to_integers(point.e, combine(*steps), point.result, proven)


def _are_bytes(memories: Mapping[str, Memory]) -> bool:
    return all(is_int8_activation(memory.type) for memory in memories.values())


def _combine_fixed(point: Point, combine: Callable[[Value, Value], Value], proven: bool) -> Value:
    """Rule 10: both operands moved up, brought to a common scale, combined, and brought to that of dest."""
    e, (lhs, rhs, dest) = point.e, (one_scale(point.memories[n].type) for n in ("lhs", "rhs", "dest"))
    assert lhs is not None and rhs is not None and dest is not None
    bits = sum_bits(lhs, rhs)
    *shared, last = sum_multipliers(lhs.scale, rhs.scale, dest.scale, bits)
    parts = []
    for name, factor in zip(("lhs", "rhs"), shared, strict=True):
        centred = point.centred(name)
        moved = e.b.shl(centred, scalar(centred.type, bits))
        parts.append(multiply_fixed(e, moved, point.reals(factor), proven=True))
    return emit_requantize(e, combine(*parts), point.reals(last), point.result, proven)


def _mul(point: Point) -> Value:
    e = point.e
    if point.counts:
        return e.b.mul(point.values["lhs"], point.values["rhs"])
    if point.dest.is_float:
        return point.bounded(e.b.fmul(point.values["lhs"], point.values["rhs"]))
    scales = [point.memories[name].scale for name in ("lhs", "rhs", "dest")]
    known = not isinstance(scales[0], PerCall)
    factor = float(multiplier(*scales)) if known else scales[0] * scales[1] / scales[2]
    limit = largest_result(point.operation, point.memories)
    if point.interleaves:
        # Magnitudes are below 2^8, so float32 holds the product exactly, like int32: the bits are the same.
        pairs = zip(point.steps("lhs", 1.0), point.steps("rhs", 1.0), strict=True)
        products = [e.b.fmul(e.b.fmul(*pair), scalar(pair[0].type, factor)) for pair in pairs]
        return round_interleaved(e, products, point.result, fits_rounding(limit))
    product = e.b.mul(point.centred("lhs"), point.centred("rhs"))
    return emit_requantize(e, product, point.reals(factor), point.result, fits_rounding(limit))


def _div(point: Point) -> Value:
    if point.counts:
        return emit_quotient(point.e, point.values["lhs"], point.values["rhs"], point.dest.type.element)
    return _through_float(point, point.e.b.fdiv(point.real("lhs"), point.real("rhs")))


def _power(point: Point) -> Value:
    if point.counts:
        return emit_power(point.e, point.values["lhs"], point.values["rhs"], point.dest.type.element)
    return _through_float(point, emit_scalar(point.e, power, point.real("lhs"), point.real("rhs")))


def _through_float(point: Point, value: Value) -> Value:
    return point.bounded(value) if point.dest.is_float else point.from_real(value)


def _prelu(point: Point) -> Value:
    return point.from_real(emit_scalar(point.e, prelu, point.real("src"), point.values["slope"]))


def _clip(point: Point) -> Value:
    return point.bounded(point.values["src"])


def _affine(point: Point) -> Value:
    e, scale, shift = point.e, point.values["scale"], point.values["shift"]
    if point.dest.is_float:
        return point.bounded(e.b.fadd(e.b.fmul(point.values["src"], scale), shift))
    zero = point.memories["src"].zero_point
    return emit_affine_int8(e, point.values["src"], zero, scale, shift, point.result, point.proven)


def _quantize(point: Point) -> Value:
    return point.from_real(point.values["src"])


def _dequantize(point: Point) -> Value:
    src = point.memories["src"]
    return emit_dequantize(point.e, point.values["src"], src.zero_point, src.scale)


def _rescale(point: Point) -> Value:
    return point.rescaled("src")


def _high_byte(point: Point) -> Value:
    e, x = point.e, point.values["src"]
    return _byte(point, e.b.ashr(x, scalar(x.type, 8)), 0)


def _low_byte(point: Point) -> Value:
    return _byte(point, point.values["src"], LOW_ZERO)


def _byte(point: Point, x: Value, offset: int) -> Value:
    """Low 8 bits of int16 plus an offset, with the activation bias of int8, modulo 256."""
    e, byte = point.e, vec(I8, point.lanes)
    return e.b.add(e.b.trunc(x, byte), scalar(byte, (point.dest.bias + offset) % 256))


def _requantize(point: Point) -> Value:
    """Requantize int32 sums, of which an int16 activation has two: of its low and of its high bytes.

    Double holds `256 * high + low` exactly, so the conversion to float32 is the only rounding.
    """
    e, low, high = point.e, point.values["low"], point.values.get("high")
    reals = vec(F32, point.lanes)
    if high is None and not point.dest.is_float and point.result.fixed_point:
        return emit_requantize(e, low, point.values["multiplier"], point.result, proven=False)
    if high is None:
        total = e.b.sitofp(low, reals)
    else:
        wide = vec(F64, point.lanes)
        place = e.b.fmul(e.b.sitofp(high, wide), scalar(wide, PLACE))
        total = e.b.fptrunc(e.b.fadd(place, e.b.sitofp(low, wide)), reals)
    value = e.b.fmul(total, point.values["multiplier"])
    if point.dest.is_float:
        return point.bounded(value)
    return round_to_integers(e, value, point.result, proven=False, may_be_nan=False)


def _lookup(point: Point) -> Value:
    return point.e.target.look_up(point.e, point.values["src"], point.tables["table"])


def _splat(point: Point) -> Value:
    dest = point.dest
    value = stored_value(point.operation.value, dest.type) + dest.bias
    return scalar(vec(dest.element, point.lanes), value)


def _function(point: Point) -> Value:
    return emit_function(point.e, point.operation, point.values["src"])


def _max(point: Point) -> Value:
    return emit_extremum(point.e, point.alike("lhs"), point.alike("rhs"), ">", point.dest.type)


def _min(point: Point) -> Value:
    return emit_extremum(point.e, point.alike("lhs"), point.alike("rhs"), "<", point.dest.type)


def _select(point: Point) -> Value:
    return emit_select(point.e, point.values["condition"], point.alike("lhs"), point.alike("rhs"))


def _compare(point: Point) -> Value:
    element = point.memories["lhs"].type.element
    return emit_compare(point.e, point.operation.relation, point.values["lhs"], point.values["rhs"], element)


def _whole(point: Point) -> Value:
    lhs, rhs = point.values["lhs"], point.values["rhs"]
    return emit_operation(point.e, point.operation.operation, lhs, rhs, point.dest.type.element)


def _cast(point: Point) -> Value:
    return emit_cast(point.e, point.values["src"], point.memories["src"].type, point.dest.type)


EXPRESSIONS: dict[type[Operation], Callable[[Point], Value]] = {
    ElementAdd: _add,
    ElementSub: _sub,
    ElementMul: _mul,
    ElementDiv: _div,
    ElementPower: _power,
    ElementMax: _max,
    ElementMin: _min,
    PRelu: _prelu,
    Select: _select,
    Compare: _compare,
    Whole: _whole,
    Cast: _cast,
    **dict.fromkeys(FUNCTIONS.values(), _function),
    Clip: _clip,
    Affine: _affine,
    Quantize: _quantize,
    Dequantize: _dequantize,
    Rescale: _rescale,
    HighByte: _high_byte,
    LowByte: _low_byte,
    Requantize: _requantize,
    Lookup: _lookup,
    Splat: _splat,
}
