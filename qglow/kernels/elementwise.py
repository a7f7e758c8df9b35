"""One loop for data-parallel operations, alone or several in a row: load vectors, evaluate, store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.operation import Operation
from qglow.instructions.ops.elementwise import Affine, ElementAdd, ElementMul, ElementSub
from qglow.instructions.ops.quantize import Lookup, Requantize, Rescale
from qglow.instructions.program import Instruction
from qglow.kernels.builder import Emitter, Value
from qglow.kernels.expressions import EXPRESSIONS, Point
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.operand import Memory, contiguous_runs, is_biased, memory_of, without_parameters
from qglow.kernels.requantize import fits_rounding, steps_limit
from qglow.kernels.sweep import sweep

LANES = 16
TABLE_LANES = 64
CYCLES_A_VECTOR = 6.0
FEW_RESTS = 16
"""In runs of this many registers a rest that is loaded and stored under a mask hardly counts."""


@kernel
@dataclass(frozen=True)
class Elementwise(Kernel):
    """Vectors of `lanes` elements, whatever the register size: LLVM splits them.

    `proven`: constant factors rule out results that no int32 holds.
    """

    name: ClassVar[str] = "elementwise"

    lanes: int = LANES
    proven: bool = False

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """A table with the bias of the results added; its index is the biased input."""
        if not isinstance(instruction.operation, Lookup):
            return {}
        data = instruction.operand("table").data
        assert data is not None
        return {"table": (data.astype(np.int16) + isa.activation_bias).astype(np.uint8)}

    def compared(self, operation: Operation, memory: Memory) -> Memory:
        """Tables are looked up by the byte in memory, whatever number that stands for."""
        return without_parameters(memory) if isinstance(operation, Lookup) else memory

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Cycles by the number of vectors."""
        return instruction.operand("dest").type.size / isa.float_lanes * CYCLES_A_VECTOR

    def emit(self, site: Site) -> None:
        """A stack of one."""
        memories = spread_over_dest(site.operation, site.operands)
        places = {name: index for index, name in enumerate(memories)}
        member = Member(site.operation, memories, places, site.constants, self.proven, stored=True)
        emit_members(site.e, [member], self.lanes)


@dataclass(frozen=True)
class Member:
    """One operation of a stack.

    `memories` have dest's shape. Operands with one number in `places`, here or in another
    member, are the same elements. Only a `stored` result leaves the registers.
    """

    operation: Any
    memories: Mapping[str, Memory]
    places: Mapping[str, int]
    tables: Mapping[str, Value]
    proven: bool
    stored: bool


def emit_members(e: Emitter, members: Sequence[Member], lanes: int) -> None:
    """One sweep that computes all members for each vector, in order."""
    swept = dict(touched_places(members))
    order = list(swept)

    def body(pointers: list[Value], count: int | None) -> None:
        at = dict(zip(order, pointers, strict=True))
        held: dict[int, Value] = {}
        for member in members:
            values = {}
            for name, place in member.places.items():
                if name == "dest":
                    continue
                if place not in held:
                    held[place] = _load(e, member.memories[name], at[place], lanes, count)
                values[name] = held[place]
            point = Point(e, member.operation, member.memories, values, member.tables, lanes, member.proven)
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
    """The places that are loaded or stored, with a memory of each; others stay in registers."""
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
    """The operands in dest's shape: they repeat along axes where they have extent 1.

    Those of one value a channel repeat along all other axes.
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
    """Whether an operand has one value a channel."""
    return isinstance(operation, Affine | Requantize) and name in ("scale", "shift", "multiplier")


def affine_is_proven(instruction: Instruction) -> bool:
    """Whether no result of an int8 affine map comes near the limits of int32 before the clamp."""
    source = instruction.operand("src").type.quantization
    factors, shifts = (instruction.operand(name).data for name in ("scale", "shift"))
    if source is None or factors is None or shifts is None:
        return False
    largest = np.abs(factors.astype(np.float64)) * steps_limit(source, 1.0)
    largest += np.abs(shifts.astype(np.float64)) * 1.001
    return fits_rounding(np.max(largest, initial=0.0))


@candidates_for(*EXPRESSIONS)
def elementwise_candidates(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """The one loop; wider vectors for tables, whose permutes take whole registers."""
    if isinstance(instruction.operation, Lookup):
        table = instruction.operand("table")
        return [Elementwise(TABLE_LANES)] if table.data is not None else []
    proven = isinstance(instruction.operation, Affine) and affine_is_proven(instruction)
    lanes = isa.byte_lanes if _fills_registers(instruction, isa) else LANES
    return [Elementwise(lanes, proven)]


def _fills_registers(instruction: Instruction, isa: Isa) -> bool:
    """Whether whole registers of bytes pay: int8 arithmetic that interleaves, and runs with small rests."""
    buffers = [instruction.operand(name) for name in ("dest", *_sources(instruction))]
    interleaves = isinstance(instruction.operation, ElementAdd | ElementSub | ElementMul | Rescale)
    if not interleaves or not all(is_biased(buffer.type) for buffer in buffers):
        return False
    memories = [memory_of(None, buffer, isa).spread(buffers[0].type.shape) for buffer in buffers]
    runs = contiguous_runs(memories[0].shape, [m.strides for m in memories], [1] * len(memories))
    rest = runs.length % isa.byte_lanes
    return runs.length >= isa.byte_lanes and (rest == 0 or runs.length >= FEW_RESTS * isa.byte_lanes)


def _sources(instruction: Instruction) -> list[str]:
    return [spec.name for spec, _ in instruction.operands() if spec.name != "dest"]
