"""Loop of elementwise operations, one or a stack of several: load vectors, evaluate, store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.operation import Operation
from qglow.instructions.ops.elementwise import Affine, ElementAdd, ElementMul, ElementSub
from qglow.instructions.ops.functions import Function
from qglow.instructions.ops.quantize import Lookup, Requantize, Rescale
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.requantize import fits_rounding, steps_limit
from qglow.kernels.elementwise.expressions import EXPRESSIONS, Point
from qglow.kernels.elementwise.limits import READING_PARAMETERS, decided_by_parameters
from qglow.kernels.emit.builder import Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import (
    Memory,
    contiguous_runs,
    is_int8_activation,
    memory_of,
    without_parameters,
)
from qglow.kernels.emit.sweep import sweep
from qglow.kernels.emit.target import VectorTarget

FUNCTION_REGISTERS = 2
"""Least registers of a vector of a function: operations on one wait for each other, on two they take turns.

Three and four took as long or longer.
"""
FEW_RESTS = 16
"""Registers of a run from which on the time of a masked partial vector at its end hardly counts."""


@kernel
@dataclass(frozen=True)
class Elementwise(Kernel):
    """Elementwise operation in vectors of `lanes` elements; LLVM splits them into registers of the target.

    `lanes`: 16 where a listing names none. `proven`: constant factors rule out results beyond int32, so
    rounding needs no float clamp.
    """

    name: ClassVar[str] = "elementwise"
    limits_live: ClassVar[bool] = True

    lanes: int = 16
    proven: bool = False

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Lookup table of 256 bytes, with the activation bias added to its entries and to its index.

        So an activation as memory holds it is the index, taken as an unsigned byte, and an entry is a result
        as memory holds it.
        """
        if not isinstance(instruction.operation, Lookup):
            return {}
        data = instruction.operand("table").data
        assert data is not None
        ordered = np.roll(data, target.activation_bias - 128)
        return {"table": (ordered.astype(np.int16) + target.activation_bias).astype(np.uint8)}

    def compared(self, operation: Operation, memory: Memory) -> Memory:
        """Operand, without its parameters for lookups: they take bytes, whatever numbers these stand for."""
        return without_parameters(memory) if isinstance(operation, Lookup) else memory

    def reads_parameters(self, instruction: Instruction, target: VectorTarget) -> bool:
        """Whether this is arithmetic that depends on scales and zero points, which its code then reads.

        Not in fixed point and without a float unit: ratios of scales are computed beforehand there.
        """
        scale = instruction.operand("dest").type.quantization
        if not target.has_float_unit or (scale is not None and scale.fixed_point):
            return False
        return isinstance(instruction.operation, READING_PARAMETERS)

    def decided(self, operation: Operation, memories: Mapping[str, Memory]) -> tuple[object, ...]:
        """Facts about bounds of results that decide the code even where it reads parameters at run time."""
        if not isinstance(operation, READING_PARAMETERS):
            return ()
        return decided_by_parameters(operation, memories)

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Estimated cycles, by the number of vectors."""
        return (
            instruction.operand("dest").type.size / target.float_lanes * target.model.loops.elementwise_vector
        )

    def emit(self, site: Site) -> None:
        """Emit the loop for a stack of this one operation."""
        memories = spread_over_dest(site.operation, site.operands)
        places = {name: index for index, name in enumerate(memories)}
        member = Member(site.operation, memories, places, site.constants, self.proven, stored=True)
        emit_members(site.e, [member], self.lanes)


@dataclass(frozen=True)
class Member:
    """One of the operations that a loop evaluates on each vector.

    memories: operands by name, in the shape of `dest`.
    places: a number for every operand by name; operands of all members with equal numbers are the same
        elements in memory.
    tables: addresses of constants that are not read element by element.
    proven: as in `Elementwise`.
    stored: whether the result is written to memory; else it only stays in registers for later members.
    """

    operation: Any
    memories: Mapping[str, Memory]
    places: Mapping[str, int]
    tables: Mapping[str, Value]
    proven: bool
    stored: bool


def emit_members(e: Emitter, members: Sequence[Member], lanes: int) -> None:
    """Emit one loop that evaluates all members in order on each vector.

    A result stays in registers for the members after it: none of them loads it, and it is stored only if it
    is needed in memory.
    """
    swept = dict(touched_places(members))
    order, beside_function = list(swept), any(is_chain(member.operation) for member in members)

    def body(pointers: list[Value], count: int | None) -> None:
        at = dict(zip(order, pointers, strict=True))
        held: dict[int, Value] = {}
        for member in members:
            values = {}
            for name, place in member.places.items():
                if name == "dest":
                    continue
                # Load operands once for all members; results of earlier members are in registers already.
                if place not in held:
                    held[place] = _load(e, member.memories[name], at[place], lanes, count)
                values[name] = held[place]
            described = (member.memories, values, member.tables, lanes, member.proven, beside_function)
            point = Point(e, member.operation, *described)
            dest = member.places["dest"]
            held[dest] = EXPRESSIONS[type(member.operation)](point)
            if member.stored:
                e.store_lanes(held[dest], at[dest], count)

    sweep(e, list(swept.values()), lanes, body)


def _load(e: Emitter, memory: Memory, pointer: Value, lanes: int, count: int | None) -> Value:
    if memory.repeats:
        return e.splat(e.load(pointer, memory.element), lanes)
    return e.load_lanes(pointer, memory.element, lanes, count)


def touched_places(members: Sequence[Member]) -> list[tuple[int, Memory]]:
    """Places that are loaded or stored, each with an operand there; the others exist in registers only."""
    touched: dict[int, Memory] = {}
    written: set[int] = set()
    for member in members:
        for name, place in member.places.items():
            if name != "dest" and place not in written:
                touched.setdefault(place, member.memories[name])
        dest = member.places["dest"]
        written.add(dest)
        if member.stored:
            touched.setdefault(dest, member.memories["dest"])
    return list(touched.items())


def spread_over_dest(operation: Any, operands: Mapping[str, Memory]) -> dict[str, Memory]:
    """Operands broadcast to the shape of `dest`: their elements repeat along axes where they have extent 1.

    Operands of one value a channel repeat along all axes but the last.
    """
    shape = operands["dest"].shape
    strides = (0,) * (len(shape) - 1) + (1,)
    return {
        name: replace(memory, type=memory.type.with_shape(shape), strides=strides)
        if is_channelwise(operation, name)
        else memory.spread(shape)
        for name, memory in operands.items()
    }


def is_channelwise(operation: Any, name: str) -> bool:
    """Whether an operand of this name holds one value for each channel (index of the last axis)."""
    return isinstance(operation, Affine | Requantize) and name in ("scale", "shift", "multiplier")


def affine_is_proven(instruction: Instruction) -> bool:
    """Whether constants prove that results of an integer affine map are far within int32 before the clamp."""
    source = instruction.operand("src").type.quantization
    factors, shifts = (instruction.operand(name).data for name in ("scale", "shift"))
    if source is None or factors is None or shifts is None:
        return False
    largest = np.abs(factors.astype(np.float64)) * steps_limit(source, 1.0)
    largest += np.abs(shifts.astype(np.float64)) * 1.001
    return fits_rounding(np.max(largest, initial=0.0))


@candidates_for(*EXPRESSIONS)
def elementwise_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the elementwise loop with the number of lanes for this operation; none for a computed table.

    Lookups take the target's `table_lanes`: byte permutes work on whole registers.
    """
    if isinstance(instruction.operation, Lookup):
        table = instruction.operand("table")
        return [Elementwise(target.table_lanes)] if table.data is not None else []
    proven = isinstance(instruction.operation, Affine) and affine_is_proven(instruction)
    lanes = target.byte_lanes if _fills_registers(instruction, target) else target.loop_lanes
    if is_chain(instruction.operation):
        lanes = max(lanes, FUNCTION_REGISTERS * target.float_lanes)
    return [Elementwise(lanes, proven)]


def is_chain(operation: Operation) -> bool:
    """Whether it is a function of one number, mostly many operations that wait for one another."""
    return isinstance(operation, Function)


def _fills_registers(instruction: Instruction, target: VectorTarget) -> bool:
    """Whether vectors of a whole register of bytes pay.

    They do for int8 arithmetic that interleaves bytes instead of widening them, over contiguous runs that are
    whole registers, or so long that the partial one at the end does not count.
    """
    buffers = [instruction.operand(name) for name in ("dest", *_sources(instruction))]
    interleaves = isinstance(instruction.operation, ElementAdd | ElementSub | ElementMul | Rescale)
    if not target.interleaves or not interleaves:
        return False
    if not all(is_int8_activation(buffer.type) for buffer in buffers):
        return False
    memories = [memory_of(None, buffer, target).spread(buffers[0].type.shape) for buffer in buffers]
    runs = contiguous_runs(memories[0].shape, [m.strides for m in memories], [1] * len(memories))
    rest = runs.length % target.byte_lanes
    return runs.length >= target.byte_lanes and (rest == 0 or runs.length >= FEW_RESTS * target.byte_lanes)


def _sources(instruction: Instruction) -> list[str]:
    return [spec.name for spec, _ in instruction.operands() if spec.name != "dest"]
