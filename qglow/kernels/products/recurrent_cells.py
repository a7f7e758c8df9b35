"""Cells of recurrent layers, a vector of elements at a time, and the memory that they work in.

Working memory holds for each sequence the sums of all gates, each gate from a whole vector on, and the state
as a tile reads it; a GRU also keeps the state after its reset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.recurrence import RecurrentLayer
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.requantize import emit_quantize, integer_range
from qglow.kernels.arithmetic.scalar import VectorAlgebra
from qglow.kernels.emit.builder import F32, I8, I32, I64, Index, Value, vec
from qglow.kernels.emit.kernel import Site
from qglow.numerics.scalar.algebra import Real

STEP_BYTES = 4
"""Bytes of states that one step of a tile multiplies: one float, or four int8."""
ALIGNMENT = 64


@dataclass(frozen=True)
class StateLayout:
    """Places of columns and states. width: H. gates: G. lanes: of a vector. is_float: type of the states."""

    width: int
    gates: int
    lanes: int
    is_float: bool

    @staticmethod
    def of(instruction: Instruction, lanes: int) -> StateLayout:
        """The layout of an instruction's operands."""
        hidden, operation = instruction.operand("hidden").type, operation_of(instruction)
        return StateLayout(hidden.shape[1], operation.gates, lanes, hidden.is_float)

    @property
    def gate_vectors(self) -> int:
        """Vectors of one gate; the last may be partial."""
        return -(-self.width // self.lanes)

    @property
    def steps(self) -> int:
        """Steps of a tile along the states."""
        return self.width if self.is_float else -(-self.width // STEP_BYTES)

    @property
    def sums_bytes(self) -> int:
        """Bytes of the sums of all gates of one sequence."""
        return _aligned(4 * self.lanes * self.gate_vectors * self.gates)

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of one sequence."""
        return _aligned(STEP_BYTES * self.steps)

    @property
    def row_bytes(self) -> int:
        """Bytes of working memory of one sequence: sums, states, states after the reset."""
        return self.sums_bytes + 2 * self.state_bytes

    @property
    def weights_bytes(self) -> int:
        """Bytes of packed float weights."""
        return 4 * self.lanes * self.gate_vectors * self.gates * self.width

    def spread(self, columns: Array) -> Array:
        """[G * H, ...] with each gate filled up with zeros to whole vectors."""
        apart = columns.reshape(self.gates, self.width, -1)
        missing = self.gate_vectors * self.lanes - self.width
        filled = np.pad(apart, ((0, 0), (0, missing), (0, 0)))
        return filled.reshape(-1, *columns.shape[1:])


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def operation_of(instruction: Instruction) -> RecurrentLayer:
    """The operation of an instruction, by its type."""
    assert isinstance(instruction.operation, RecurrentLayer)
    return instruction.operation


def emit_packing(site: Site, layout: StateLayout, to: Value) -> Value:
    """Pack float weights that are computed, [H, G * H], vector by vector of each gate; return `to`."""
    e, lanes, width = site.e, layout.lanes, layout.width
    vector_bytes = 4 * lanes
    for start in range(0, width, lanes):
        with e.loop(0, layout.gates, name="gate") as gate, e.loop(0, width, name="row") as row:
            column = e.plus(e.scaled(gate, width), start)
            values = e.load_lanes(site["filter"].at(e, row, column), F32, lanes, min(lanes, width - start))
            vector = e.plus(e.scaled(gate, layout.gate_vectors), start // lanes)
            place = e.plus(e.scaled(vector, width * vector_bytes), e.scaled(row, vector_bytes))
            e.store(values, e.offset(to, place))
    return to


@dataclass(frozen=True)
class Cells:
    """Emitter of the cells of the sequence `row`."""

    site: Site
    layout: StateLayout
    row: Index

    @property
    def sums(self) -> Value:
        """Address of the sums from the state."""
        e = self.site.e
        return e.offset(self.site.scratch, e.scaled(self.row, self.layout.row_bytes))

    @property
    def state(self) -> Value:
        """Address of the hidden states."""
        return self.site.e.offset(self.sums, self.layout.sums_bytes)

    @property
    def reset_state(self) -> Value:
        """Address of the states after the reset."""
        return self.site.e.offset(self.state, self.layout.state_bytes)

    def begin(self, first: int) -> None:
        """Copy the first states to where the steps read them, and to row `first` of the result."""

        def copy(start: Index, count: int | None) -> None:
            self._keep(self._load("hidden", start, count), first, start, count)
            carried = self._load("initial", start, count)
            self.site.e.store_lanes(carried, self._place("carried", start), count)

        self._vectors(copy)

    def reset(self, time: Index) -> None:
        """Store the states after their reset."""

        def compute(start: Index, count: int | None) -> None:
            given, own = self._given(time, 1, start, count), self._own(1, start)
            result = operation_of(self.site.instruction).reset(
                given, own, self._real(self._load("carried", start, count))
            )
            self._store_state(self._stored(result), self.reset_state, start, count)

        self._vectors(compute)

    def hold(self, row: Index) -> None:
        """Copy the states to a row of the result."""

        def copy(start: Index, count: int | None) -> None:
            place = self.site["dest"].at(self.site.e, row, self.row, start)
            self.site.e.store_lanes(self._held(start, count), place, count)

        self._vectors(copy)

    def step(self, time: Index) -> None:
        """Compute the new states from all sums. `time`: the step, in the order of the sequence."""
        e, operation = self.site.e, operation_of(self.site.instruction)
        row = time if operation.reverse else e.plus(time, 1)
        within = self._within(time)

        def compute(start: Index, count: int | None) -> None:
            gates = range(operation.gates)
            given = [self._given(time, gate, start, count) for gate in gates]
            own = [self._own(gate, start) for gate in gates]
            before = self._load("carried", start, count)
            peepholes = [self._vector("peepholes", i, start, count) for i in range(3)]
            seen = [value for value in peepholes if value is not None]
            bias = self._vector("bias", 0, start, count)
            hidden, carried = operation.step(given, own, self._real(before), seen, bias)
            state, content = self._stored(hidden), carried.value
            if within is not None:
                state = e.b.select(within, state, self._held(start, count))
                content = e.b.select(within, content, before)
            self._keep(state, row, start, count)
            e.store_lanes(content, self._place("carried", start), count)

        self._vectors(compute)

    # Vectors of elements

    def _vectors(self, body: Callable[[Index, int | None], None]) -> None:
        """Emit `body(start, count)` for all vectors of a sequence's elements; count: None for a whole one."""
        lanes, width = self.layout.lanes, self.layout.width
        whole = width // lanes * lanes
        if whole:
            with self.site.e.loop(0, whole, lanes, "element") as start:
                body(start, None)
        if whole < width:
            body(whole, width - whole)

    @property
    def _element(self) -> Any:
        """LLVM type of a state in memory."""
        return F32 if self.layout.is_float else I8

    @property
    def _state_size(self) -> int:
        return 4 if self.layout.is_float else 1

    def _real(self, value: Value) -> Real:
        return Real(VectorAlgebra(self.site.e, vec(F32, self.layout.lanes)), value)

    def _place(self, name: str, start: Index) -> Value:
        memory = self.site[name]
        return memory.at(self.site.e, self.row, start)

    def _load(self, name: str, start: Index, count: int | None) -> Value:
        element = self.site[name].element
        return self.site.e.load_lanes(self._place(name, start), element, self.layout.lanes, count)

    def _given(self, time: Index, gate: int, start: Index, count: int | None) -> Real:
        """Sums of a gate from the input."""
        e = self.site.e
        place = self.site["src"].at(e, time, self.row, e.plus(start, gate * self.layout.width))
        return self._real(e.load_lanes(place, F32, self.layout.lanes, count))

    def _own(self, gate: int, start: Index) -> Real:
        """Sums of a gate from the state."""
        e, layout = self.site.e, self.layout
        at = e.scaled(e.plus(start, gate * layout.gate_vectors * layout.lanes), 4)
        return self._real(e.load(e.offset(self.sums, at), vec(F32, layout.lanes)))

    def _vector(self, name: str, part: int, start: Index, count: int | None) -> Real | None:
        """Elements of a part of an operand that all sequences share; None where it is absent."""
        memory = self.site.operands.get(name)
        if memory is None:
            return None
        place = memory.at(self.site.e, self.site.e.plus(start, part * self.layout.width))
        return self._real(self.site.e.load_lanes(place, F32, self.layout.lanes, count))

    @property
    def length(self) -> Value | None:
        """Steps of the sequence; None where all are as long as the layer."""
        lengths, e = self.site.operands.get("lengths"), self.site.e
        return None if lengths is None else e.b.sext(e.load(lengths.at(e, self.row), I32), I64)

    def _within(self, time: Index) -> Value | None:
        """Whether the sequence has not ended before a step; None where all are as long."""
        length, e = self.length, self.site.e
        return None if length is None else e.b.icmp_signed("<", e.index(time), length)

    def _held(self, start: Index, count: int | None) -> Value:
        """The states that the next step reads."""
        place = self.site.e.offset(self.state, self.site.e.scaled(start, self._state_size))
        return self.site.e.load_lanes(place, self._element, self.layout.lanes, count)

    def _stored(self, value: Real) -> Value:
        """New states as memory holds them."""
        if self.layout.is_float:
            return value.value
        dest = self.site["dest"]
        result = integer_range(dest.type, dest.bias, zero_point=dest.zero_point)
        return emit_quantize(self.site.e, value.value, dest.scale, result)

    def _store_state(self, state: Value, base: Value, start: Index, count: int | None) -> None:
        e = self.site.e
        e.store_lanes(state, e.offset(base, e.scaled(start, self._state_size)), count)

    def _keep(self, state: Value, row: Index, start: Index, count: int | None) -> None:
        """Store states where the next step reads them, and in a row of the result."""
        self._store_state(state, self.state, start, count)
        place = self.site["dest"].at(self.site.e, row, self.row, start)
        self.site.e.store_lanes(state, place, count)
