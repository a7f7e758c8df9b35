"""Native code that stops after every kernel, so that memory can be read in place."""

from __future__ import annotations

import copy
import ctypes
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property

import numpy as np

from qglow.codegen.cache import KernelCache
from qglow.codegen.calls import make_call
from qglow.codegen.compiler import compile_program
from qglow.codegen.jit import load
from qglow.codegen.memory import aligned, aligned_bytes, aligned_tensor
from qglow.core.types import Array
from qglow.instructions.liveness import (
    Usage,
    changed_after,
    overlap,
    whole_at,
    written_borders,
    written_parts,
)
from qglow.instructions.passes.stacking import is_internal, stacks
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program
from qglow.kernels.emit.operand import to_logical, to_physical
from qglow.kernels.emit.target import VectorTarget
from qglow.runtime.cores import choose_processes
from qglow.runtime.hosting import Host, hosted_nodes
from qglow.targets.native.kept import Change, Changed, Course, KeptMemory, Numbers, RunMemory, Unit
from qglow.targets.protocol import Step


class SteppedCode:
    """A program in memory. Satisfies `SteppedProgram`.

    The kernels, the memory plan and the order are those of the whole program; only the entry function
    differs: it executes the one kernel whose number it is given. So observing a program does not change its
    results.
    """

    def __init__(self, program: Program, target: VectorTarget, kernels: KernelCache | None = None) -> None:
        """Compile and load a planned program. Raises UsageError for a host that cannot run it."""
        compiled = compile_program(
            program, target, stepped=True, processes=choose_processes(), kernels=kernels
        )
        self._program, self._target, self._bias = program, target, target.activation_bias
        self._run = load(compiled)
        self._weights, self._slots = aligned(compiled.weights), compiled.slots
        self._places = compiled.placeholders
        # Constants with other contents than the program's own, by name, and digests of them by unit.
        self._differing: Set[str] = frozenset()
        self._contents: dict[int, frozenset[tuple[str, str]]] = {}
        self._kept = KeptMemory()
        self._arena_size = compiled.arena_size
        self._usage = Usage(program)
        self._host = Host(hosted_nodes(program))

    def run_changed(
        self, inputs: Mapping[str, Array], changes: Mapping[str, Change], keep: bool = False
    ) -> dict[str, Array]:
        """Run the program with changes to intermediate values; returns outputs by name.

        A change modifies the buffer of its name in place as soon as all of it is written. Its array may have
        the axes in any order. Memory has to be planned without reuse. keep: as `SteppedProgram` says.
        """
        keep = keep and not self._has_state
        memory = self._kept.of(inputs) if keep else None
        if memory is None:
            memory = self._memory(inputs)
            if keep:
                self._kept.keep(memory)
        after = self._changes_by_unit(changes)
        numbers = self._kept.numbers if keep else Numbers()
        course = Course(self._inputs, self._units, self._contents, after, numbers)
        stale, memory.holds = course.stale(memory.holds), {}
        self._fill([buffer for buffer in self._inputs if buffer in stale], memory)
        self._change(after.get(-1, ()), stale, memory)
        for index, unit in enumerate(self._units):
            if not stale.isdisjoint(unit.writes):
                self._step(unit.group, memory)
            self._change(after.get(index, ()), stale, memory)
        memory.holds = course.final
        return {b.name: self._read(b, memory) for b in self._outputs}

    def _changes_by_unit(self, changes: Mapping[str, Change]) -> dict[int, list[Changed]]:
        """Changes by the number of the unit that they follow, in the order of instructions; -1 for inputs."""
        found: dict[int, list[Changed]] = {}
        for number, names in sorted(changed_after(self._whole, changes).items()):
            made = [Changed(name, self._buffers[name].root, changes[name]) for name in names]
            found.setdefault(self._unit_of[number], []).extend(made)
        return found

    def _change(self, changes: Sequence[Changed], stale: Set[Buffer], memory: RunMemory) -> None:
        for each in changes:
            if each.root in stale:
                each.change(self._seen(self._buffers[each.name], memory))

    def exchanged(self, constants: Mapping[str, Array], changed: Mapping[str, str]) -> SteppedCode | None:
        """The same code with other contents of constants, as `SteppedProgram` says."""
        reads = self._reads
        own = {buffer.name: buffer for buffer in self._program.constants if reads[buffer] == 1}
        if any(name not in own or not _fits(own[name], constants[name]) for name in changed):
            return None
        differing = self._differing | changed.keys()
        given = {b: constants[b.name] for b in self._program.constants if b.name in constants}
        given = {b: data for b, data in given.items() if b.data is None or b.name in differing}
        before = {buffer: buffer.data for buffer in given}
        try:
            for buffer, data in given.items():
                buffer.data = data
            filled = self._weights_with({own[name] for name in changed}, given.keys(), differing)
        finally:
            for buffer, known in before.items():
                buffer.data = known
        if filled is None:
            return None
        other, (weights, units) = copy.copy(self), filled
        other._weights, other._differing, other._contents = weights, differing, dict(self._contents)
        for unit in units:
            digests = {b.name: changed[b.name] for b in self._constants_of[unit] if b.name in changed}
            other._contents[unit] = frozenset({**dict(self._contents.get(unit, ())), **digests}.items())
        return other

    def _weights_with(
        self, changed: Set[Buffer], given: Set[Buffer], differing: Set[str]
    ) -> tuple[Array, list[int]] | None:
        """The constants with new contents of some, and the numbers of the units that read these.

        given: constants that have the wanted contents now; without them, so have those that never differed,
        unless the program forgot them. None where the code would be another one, or contents are missing.
        """
        weights = aligned_bytes(self._weights.size)
        weights[:] = self._weights
        units = []
        for number, (unit, slots) in enumerate(zip(self._units, self._slots, strict=True)):
            read = self._constants_of[number]
            if changed.isdisjoint(read):
                continue
            if any(b not in given and (b.data is None or b.name in differing) for b in read):
                return None
            if not slots.fill(make_call(list(unit.group), self._usage, self._target), weights, self._bias):
                return None
            units.append(number)
        return weights, units

    @cached_property
    def _reads(self) -> Counter[Buffer]:
        return Counter(b.root for i in self._program.code for _, b in i.operands())

    @cached_property
    def _constants_of(self) -> list[list[Buffer]]:
        """Constants that each unit reads."""
        roots = ([b.root for i in unit.group for _, b in i.operands()] for unit in self._units)
        return [[root for root in each if root.kind is BufferKind.CONSTANT] for each in roots]

    @cached_property
    def _inputs(self) -> list[Buffer]:
        return self._program.inputs()

    @cached_property
    def _outputs(self) -> list[Buffer]:
        return self._program.outputs()

    @cached_property
    def _has_state(self) -> bool:
        return bool(self._program.state())

    @cached_property
    def _units(self) -> list[Unit]:
        return [Unit.of(group) for group in stacks(self._program)]

    @cached_property
    def _unit_of(self) -> dict[int, int]:
        """Number of the unit of an instruction, by its own; -1 for -1, what inputs are written by."""
        units = {id(i): number for number, unit in enumerate(self._units) for i in unit.group}
        found = {number: units[id(i)] for number, i in enumerate(self._program.code) if id(i) in units}
        return {-1: -1, **found}

    @cached_property
    def _buffers(self) -> dict[str, Buffer]:
        return {buffer.name: buffer for buffer in self._program.all_buffers()}

    @cached_property
    def _whole(self) -> dict[str, int]:
        return whole_at(self._program)

    @cached_property
    def _number(self) -> dict[int, int]:
        return {id(instruction): number for number, instruction in enumerate(self._program.code)}

    def run(self, inputs: Mapping[str, Array]) -> Iterator[Step]:
        """Run kernel by kernel; `inputs` are logical arrays by name."""
        memory = self._memory(inputs)
        self._fill(self._inputs, memory)
        for unit in self._units:
            self._step(unit.group, memory)
            group = list(unit.group)
            yield Step(tuple(group), {b.name: self._read(b, memory) for b in self._left(group)})

    def _step(self, group: Sequence[Instruction], memory: RunMemory) -> None:
        memory.wanted[0] = self._number[id(group[0])]
        table = memory.table
        end = [address or 0 for address in table[len(self._places) : -1]]
        places = memory.arena.ctypes.data, self._weights.ctypes.data, ctypes.addressof(table)
        self._host.checked(end, lambda: self._run(*places))()

    def _memory(self, inputs: Mapping[str, Array]) -> RunMemory:
        """Memory of a run with inputs, which are still to be filled in."""
        arena = aligned_bytes(self._arena_size)
        tensors = {buffer.name: aligned_tensor(buffer.type) for buffer in self._program.placeholders}
        wanted = np.zeros(1, np.uint64)
        addresses = [tensors[name].ctypes.data for name in self._places]
        addresses += [*self._host.addresses(), wanted.ctypes.data]
        table = (ctypes.c_void_p * len(addresses))(*addresses)
        return RunMemory(inputs, arena, tensors, wanted, table)

    def _fill(self, buffers: Sequence[Buffer], memory: RunMemory) -> None:
        """Write the contents of inputs."""
        for buffer in buffers:
            given = to_physical(np.ascontiguousarray(memory.inputs[buffer.name]), buffer.type, self._bias)
            memory.tensors[buffer.name].reshape(-1).view(np.uint8)[:] = given.reshape(-1).view(np.uint8)

    def _left(self, group: list[Instruction]) -> list[Buffer]:
        """Buffers that a kernel leaves in memory, without those that stay in registers or are overwritten."""
        passed_on = group[0].operation.has_epilogue
        found: list[Buffer] = []
        borders: list[Buffer] = []
        for number, instruction in enumerate(group):
            borders += written_borders(instruction)
            last = number == len(group) - 1
            if not last and (passed_on or is_internal(self._usage, group, number)):
                continue
            written = written_parts(instruction)
            found = [b for b in found if not any(overlap(b, other) for other in written)] + written
        return found + borders

    def _read(self, buffer: Buffer, memory: RunMemory) -> Array:
        seen = self._seen(buffer, memory)
        return to_logical(seen.copy(), buffer.type, self._bias).reshape(buffer.type.shape)

    def _seen(self, buffer: Buffer, memory: RunMemory) -> Array:
        """View of the elements of a buffer in place."""
        root, layout, dtype = buffer.root, buffer.layout, buffer.type.element.dtype
        if root.kind is BufferKind.ACTIVATION:
            where, start = memory.arena, root.arena_offset or 0
        else:
            where, start = memory.tensors[root.name].reshape(-1).view(np.uint8), 0
        strides = tuple(stride * dtype.itemsize for stride in layout.strides)
        offset = start + layout.offset * dtype.itemsize
        seen: Array = np.ndarray(buffer.type.shape, dtype, where.data, offset, strides)
        return seen


def _fits(buffer: Buffer, data: Array) -> bool:
    """Whether an array can take the place of a constant's contents."""
    return buffer.type.shape == data.shape and buffer.type.element.dtype == data.dtype
