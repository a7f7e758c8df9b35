"""What data-parallel operations compute of one vector, kept apart from loads and stores.

So a kernel for one instruction and one for a stack of them share the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qglow.core.types import Quantization
from qglow.instructions.operation import Operation
from qglow.instructions.ops.activation import Sigmoid, Tanh
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
from qglow.instructions.ops.logic import Cast, Compare
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
from qglow.kernels.builder import F32, F64, I8, Emitter, Value, scalar, vec
from qglow.kernels.functions import FUNCTIONS
from qglow.kernels.interleaved import centred_floats, fills_registers, round_interleaved
from qglow.kernels.logic import emit_cast, emit_compare, emit_extremum, emit_select
from qglow.kernels.lookup import emit_lookup
from qglow.kernels.operand import Memory, is_biased
from qglow.kernels.polynomials import emit_power, emit_sigmoid, emit_tanh
from qglow.kernels.requantize import (
    IntegerRange,
    clamp_float,
    emit_affine_int8,
    emit_dequantize,
    emit_quantize,
    emit_requantize,
    emit_steps,
    fits_rounding,
    integer_range,
    round_to_integers,
    steps_limit,
    widen_centred,
)
from qglow.numerics.requantize import multiplier, ratio
from qglow.numerics.wide import LOW_ZERO, PLACE


@dataclass(frozen=True)
class Point:
    """One vector of one instruction.

    `memories` give the operands' types; `values` the vectors of those that are read, by name;
    `tables` the addresses of constants that are not read element by element. `proven`: the
    contents of constants rule out results that no int32 holds.
    """

    e: Emitter
    operation: Any
    memories: Mapping[str, Memory]
    values: Mapping[str, Value]
    tables: Mapping[str, Value]
    lanes: int
    proven: bool = False

    @property
    def dest(self) -> Memory:
        """The result's memory."""
        return self.memories["dest"]

    @property
    def result(self) -> IntegerRange:
        """Zero point and bounds of an integer result."""
        low, high = getattr(self.operation, "q_lo", None), getattr(self.operation, "q_hi", None)
        return integer_range(self.dest.type, self.dest.bias, low, high)

    @property
    def interleaves(self) -> bool:
        """Whether integers fill registers of bytes, which are widened and narrowed without being moved."""
        kinds = [memory.type for memory in self.memories.values()]
        return all(is_biased(kind) for kind in kinds) and fills_registers(self.e, self.lanes)

    def quantization(self, name: str) -> Quantization:
        """Parameters of an integer operand."""
        known = self.memories[name].type.quantization
        assert known is not None
        return known

    def rescaled(self, name: str) -> Value:
        """An integer operand with the parameters and within the bounds of dest."""
        memory = self.memories[name]
        factor = float(ratio(memory.scale, self.dest.scale))
        proven = fits_rounding(steps_limit(self.quantization(name), factor))
        if self.interleaves:
            return round_interleaved(self.e, self.steps(name, factor), self.result, proven)
        steps = emit_steps(self.e, self.values[name], memory.zero_point, factor)
        return round_to_integers(self.e, steps, self.result, proven, may_be_nan=False)

    def steps(self, name: str, factor: float) -> list[Value]:
        """`float32(q - zp) * factor` of an int8 operand that fills registers, interleaved."""
        centred = centred_floats(self.e, self.values[name], self.memories[name].zero_point)
        return [self.e.b.fmul(value, scalar(value.type, factor)) for value in centred]

    def alike(self, name: str) -> Value:
        """An operand with the parameters of dest: rescaled where it is int8 of others."""
        kind = self.memories[name].type
        if kind.quantization == self.dest.type.quantization:
            return self.values[name]
        return self.rescaled(name)

    def real(self, name: str) -> Value:
        """An operand as floats: dequantized where it is int8."""
        memory = self.memories[name]
        if memory.is_float:
            return self.values[name]
        return emit_dequantize(self.e, self.values[name], memory.zero_point, memory.scale)

    def from_real(self, value: Value) -> Value:
        """A float result as dest has it, unbounded: quantized where dest is int8."""
        if self.dest.is_float:
            return value
        return emit_quantize(self.e, value, self.dest.scale, self.result)

    def bounded(self, value: Value) -> Value:
        """A float result within the operation's bounds."""
        return clamp_float(self.e, value, self.operation.lo, self.operation.hi)


def _add(point: Point) -> Value:
    return _combine(point, point.e.b.fadd)


def _sub(point: Point) -> Value:
    return _combine(point, point.e.b.fsub)


def _combine(point: Point, combine: Callable[[Value, Value], Value]) -> Value:
    if point.dest.is_float:
        return point.bounded(combine(point.values["lhs"], point.values["rhs"]))
    memories = {name: point.memories[name] for name in ("lhs", "rhs")}
    factors = {name: float(ratio(m.scale, point.dest.scale)) for name, m in memories.items()}
    proven = fits_rounding(*(steps_limit(point.quantization(name), factors[name]) for name in memories))
    if point.interleaves:
        registers = [point.steps(name, factor) for name, factor in factors.items()]
        sums = [combine(*pair) for pair in zip(*registers, strict=True)]
        return round_interleaved(point.e, sums, point.result, proven)
    steps = [
        emit_steps(point.e, point.values[name], m.zero_point, factors[name]) for name, m in memories.items()
    ]
    return round_to_integers(point.e, combine(*steps), point.result, proven)


def _mul(point: Point) -> Value:
    e = point.e
    if point.dest.is_float:
        return point.bounded(e.b.fmul(point.values["lhs"], point.values["rhs"]))
    lhs, rhs = point.memories["lhs"], point.memories["rhs"]
    factor = float(multiplier(lhs.scale, rhs.scale, point.dest.scale))
    limit = steps_limit(point.quantization("lhs"), 1.0) * steps_limit(point.quantization("rhs"), factor)
    if point.interleaves:
        # The product of two integers below 2^8 is exact in float32 too.
        pairs = zip(point.steps("lhs", 1.0), point.steps("rhs", 1.0), strict=True)
        products = [e.b.fmul(e.b.fmul(*pair), scalar(pair[0].type, factor)) for pair in pairs]
        return round_interleaved(e, products, point.result, fits_rounding(limit))
    centred = [widen_centred(e, point.values[n], point.memories[n].zero_point) for n in ("lhs", "rhs")]
    factors = scalar(vec(F32, point.lanes), factor)
    return emit_requantize(e, e.b.mul(*centred), factors, point.result, fits_rounding(limit))


def _div(point: Point) -> Value:
    return _through_float(point, point.e.b.fdiv(point.real("lhs"), point.real("rhs")))


def _power(point: Point) -> Value:
    return _through_float(point, emit_power(point.e, point.real("lhs"), point.real("rhs")))


def _through_float(point: Point, value: Value) -> Value:
    return point.bounded(value) if point.dest.is_float else point.from_real(value)


def _prelu(point: Point) -> Value:
    b, x = point.e.b, point.real("src")
    below = b.fcmp_ordered(">", scalar(x.type, 0.0), x)
    return point.from_real(b.select(below, b.fmul(point.values["slope"], x), x))


def _clip(point: Point) -> Value:
    return point.bounded(point.values["src"])


def _affine(point: Point) -> Value:
    e, scale, shift = point.e, point.values["scale"], point.values["shift"]
    if point.dest.is_float:
        return point.bounded(e.b.fadd(e.b.fmul(point.values["src"], scale), shift))
    zero = point.memories["src"].zero_point
    return emit_affine_int8(e, point.values["src"], zero, scale, shift, point.result, point.proven)


def _sigmoid(point: Point) -> Value:
    return emit_sigmoid(point.e, point.values["src"])


def _tanh(point: Point) -> Value:
    return emit_tanh(point.e, point.values["src"])


def _quantize(point: Point) -> Value:
    return emit_quantize(point.e, point.values["src"], point.dest.scale, point.result)


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
    """The low bits of int16, moved by an offset and held as memory holds int8."""
    e, byte = point.e, vec(I8, point.lanes)
    return e.b.add(e.b.trunc(x, byte), scalar(byte, (point.dest.bias + offset) % 256))


def _requantize(point: Point) -> Value:
    """Sums of bytes are exact in double, so that they are rounded once."""
    e, low, high = point.e, point.values["low"], point.values.get("high")
    reals = vec(F32, point.lanes)
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
    return emit_lookup(point.e, point.values["src"], point.tables["table"])


def _splat(point: Point) -> Value:
    dest = point.dest
    value = stored_value(point.operation.value, dest.type) + dest.bias
    return scalar(vec(dest.element, point.lanes), value)


def _function(emit: Callable[..., Value]) -> Callable[[Point], Value]:
    """A function of one variable, which takes the operation's attributes after it."""
    return lambda point: emit(point.e, point.values["src"], *point.operation.settings())


def _max(point: Point) -> Value:
    return emit_extremum(point.e, point.alike("lhs"), point.alike("rhs"), ">", point.dest.type)


def _min(point: Point) -> Value:
    return emit_extremum(point.e, point.alike("lhs"), point.alike("rhs"), "<", point.dest.type)


def _select(point: Point) -> Value:
    return emit_select(point.e, point.values["condition"], point.alike("lhs"), point.alike("rhs"))


def _compare(point: Point) -> Value:
    return emit_compare(point.e, point.operation.relation, point.values["lhs"], point.values["rhs"])


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
    Cast: _cast,
    **{operation: _function(emit) for operation, emit in FUNCTIONS.items()},
    Clip: _clip,
    Affine: _affine,
    Sigmoid: _sigmoid,
    Tanh: _tanh,
    Quantize: _quantize,
    Dequantize: _dequantize,
    Rescale: _rescale,
    HighByte: _high_byte,
    LowByte: _low_byte,
    Requantize: _requantize,
    Lookup: _lookup,
    Splat: _splat,
}
