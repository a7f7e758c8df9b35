"""Scales and zero points that a kernel reads at run time, so that layers that differ in them share code.

A kernel computes with them as with Python numbers. Expressions of parameters and constants only are computed
once a call, in the function's entry block, with the float32 operations of the numeric contract.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from llvmlite import ir

from qglow.core.types import Array, Quantization, TensorType
from qglow.instructions.operation import Operation
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import F32, I32, PerCall, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.operand import Memory, is_int8_activation

PARAMETERS = "parameters"
"""Name of the array among a kernel's constants."""
COPIES = 4
"""Number of copies of each parameter in memory, which are loaded and computed with as one vector.

LLVM 22 fails on a scalar broadcast to a vector of which only one lane is used: it makes a call of
`llvm.lrint` of the wrong type.
"""
_FLOATS, _INTEGERS = vec(F32, COPIES), vec(I32, COPIES)
_BYTES = 4 * COPIES


class Parameter(PerCall):
    """A float32 or an i32 that is loaded or computed in the function's entry block.

    It can be added, subtracted, multiplied and divided like a Python number; an integer is converted where
    the other operand is a float. As its value is unknown, it can be compared with infinities only.
    """

    def __init__(self, e: Emitter, value: Value) -> None:
        """`value`: the number in `COPIES` lanes."""
        self._e, self.value = e, value
        self._made: dict[object, Value] = {}

    def spread(self, kind: Value) -> Value:
        """Return the number as a scalar of this type, or broadcast to all lanes of a vector type."""
        if kind not in self._made:
            with self._e.at_entry():
                if isinstance(kind, ir.VectorType):
                    self._made[kind] = self._e.shuffle(self._copies(kind.element), None, [0] * kind.count)
                else:
                    self._made[kind] = self._e.extract(self._copies(kind), 0)
        return self._made[kind]

    def _copies(self, element: Value) -> Value:
        """Return the number in `COPIES` lanes of this type, converted in the entry block."""
        own = self.value.type.element
        if element == own:
            return self.value
        if own != I32:
            raise TypeError(f"a parameter of type {own} becomes no {element}")
        kind = vec(element, COPIES)
        with self._e.at_entry():
            b = self._e.b
            return b.sitofp(self.value, kind) if element == F32 else b.trunc(self.value, kind)

    def _with(self, operation: str, other: object, reverse: bool = False) -> Parameter:
        key = operation, reverse, other.value.name if isinstance(other, Parameter) else other
        if key not in self._made:
            is_float = F32 in (self.value.type.element, _type_of(other))
            kind = F32 if is_float else I32
            with self._e.at_entry():
                pair = self._copies(kind), _operand(other, kind)
                make: Callable[[Value, Value], Value] = getattr(self._e.b, "f" * is_float + operation)
                self._made[key] = Parameter(self._e, make(*(pair[::-1] if reverse else pair)))
        made: Parameter = self._made[key]
        return made

    def __add__(self, other: object) -> Parameter:
        return self if type(other) is int and other == 0 else self._with("add", other)

    def __radd__(self, other: object) -> Parameter:
        return self + other

    def __sub__(self, other: object) -> Parameter:
        return self if type(other) is int and other == 0 else self._with("sub", other)

    def __rsub__(self, other: object) -> Parameter:
        return self._with("sub", other, reverse=True)

    def __mul__(self, other: object) -> Parameter:
        return self if type(other) is int and other == 1 else self._with("mul", other)

    def __rmul__(self, other: object) -> Parameter:
        return self * other

    def __truediv__(self, other: object) -> Parameter:
        return self._with("div", other)

    def __gt__(self, other: object) -> bool:
        return _beyond(other, -math.inf)

    def __lt__(self, other: object) -> bool:
        return _beyond(other, math.inf)


def _beyond(other: object, infinity: float) -> bool:
    """Answer a comparison with an infinity, which holds for every finite number; refuse any other."""
    if other != infinity:
        raise TypeError(f"a parameter is not known, so it cannot be compared with {other}")
    return True


def _type_of(other: object) -> Value:
    if isinstance(other, Parameter):
        return other.value.type.element
    return F32 if isinstance(other, float) else I32


def _operand(other: object, kind: Value) -> Value:
    return other._copies(kind) if isinstance(other, Parameter) else scalar(vec(kind, COPIES), other)


def parameter_array(instruction: Instruction, bias: int) -> Array:
    """uint32[operands of the signature, 2, COPIES]: bits of scales, and zero points as memory holds them.

    Operands without a scale of their own have zeros.
    """
    numbers = np.zeros((len(instruction.operation.signature), 2, COPIES), np.uint32)
    for place, spec in enumerate(instruction.operation.signature):
        buffer = instruction.optional(spec.name)
        known = None if buffer is None else one_scale(buffer.type)
        if buffer is None or known is None:
            continue
        zero = known.zero_point + (bias if is_int8_activation(buffer.type) else 0)
        numbers[place, 0] = np.float32(known.scale).view(np.uint32)
        numbers[place, 1] = np.int32(zero).view(np.uint32)
    return numbers


def one_scale(kind: TensorType) -> Quantization | None:
    """The parameters of an integer activation; None for others, and where they differ along an axis."""
    known = kind.quantization
    return known if known is not None and known.axis is None else None


def with_parameters(e: Emitter, operation: Operation, name: str, memory: Memory, array: Value) -> Memory:
    """Return the operand with scale and zero point read from the array; one held as 0 is not read."""
    if one_scale(memory.type) is None:
        return memory
    place = next(i for i, spec in enumerate(operation.signature) if spec.name == name)
    with e.at_entry():
        at = e.offset(array, 2 * _BYTES * place)
        scale = Parameter(e, e.load(at, _FLOATS, align=_BYTES))
        zero = Parameter(e, e.load(e.offset(at, _BYTES), _INTEGERS, align=_BYTES))
    return replace(memory, parameters=(scale, 0 if memory.zero_point == 0 else zero))


def without_numbers(memory: Memory) -> Memory:
    """Reduce the operand to what code depends on that reads its parameters.

    Of the numbers only whether the zero point is held as 0 remains.
    """
    known = one_scale(memory.type)
    if known is None:
        return memory
    zero = -memory.bias if memory.zero_point == 0 else 1 - memory.bias
    unit = replace(known, scales=(1.0,), zero_points=(zero,))
    return replace(memory, type=memory.type.quantized(unit))
