"""Native code that stops after every kernel, so that memory can be read in place."""

from __future__ import annotations

import copy
import ctypes
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Set
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
        # Those of the program itself: `exchanged` changes them, in whichever copy of this it is called.
        self._own_weights, self._slots = aligned(compiled.weights), compiled.slots
        self._weights, self._places = self._own_weights, compiled.placeholders
        self._arena_size = compiled.arena_size
        self._usage = Usage(program)
        self._host = Host(hosted_nodes(program))

    def run_changed(
        self, inputs: Mapping[str, Array], changes: Mapping[str, Callable[[Array], None]]
    ) -> dict[str, Array]:
        """Run the program with changes to intermediate values; returns outputs by name.

        A change modifies the buffer of its name in place as soon as all of it is written. Its array may have
        the axes in any order. Memory has to be planned without reuse.
        """
        arena, tensors, wanted, table = self._memory(inputs)
        after = changed_after(self._whole, changes)
        for name in after.get(-1, ()):
            changes[name](self._seen(self._buffers[name], arena, tensors))
        for group in self._stacks:
            self._step(group, arena, wanted, table)
            for name in (name for i in group for name in after.get(self._number[id(i)], ())):
                changes[name](self._seen(self._buffers[name], arena, tensors))
        return {b.name: self._read(b, arena, tensors) for b in self._program.outputs()}

    def exchanged(self, constants: Mapping[str, Array], changed: Collection[str]) -> SteppedCode | None:
        """The same code with other contents of constants, as `SteppedProgram` says."""
        reads = Counter(b.root for i in self._program.code for _, b in i.operands())
        own = {buffer.name: buffer for buffer in self._program.constants if reads[buffer] == 1}
        if any(name not in own or not _fits(own[name], constants[name]) for name in changed):
            return None
        given = {b: constants[b.name] for b in self._program.constants if b.name in constants}
        given = {b: data for b, data in given.items() if b.data is None or b.name in changed}
        before = {buffer: buffer.data for buffer in given}
        try:
            for buffer, data in given.items():
                buffer.data = data
            weights = self._weights_with({own[name] for name in changed})
        finally:
            for buffer, known in before.items():
                buffer.data = known
        if weights is None:
            return None
        other = copy.copy(self)
        other._weights = weights
        return other

    def _weights_with(self, changed: Set[Buffer]) -> Array | None:
        """The constants with new contents of some, or None where the code would be another one."""
        weights = aligned_bytes(self._own_weights.size)
        weights[:] = self._own_weights
        for group, slots in zip(stacks(self._program), self._slots, strict=True):
            if all(b.root not in changed for i in group for _, b in i.operands()):
                continue
            if not slots.fill(make_call(group, self._usage, self._target), weights, self._bias):
                return None
        return weights

    @cached_property
    def _buffers(self) -> dict[str, Buffer]:
        return {buffer.name: buffer for buffer in self._program.all_buffers()}

    @cached_property
    def _whole(self) -> dict[str, int]:
        return whole_at(self._program)

    @cached_property
    def _stacks(self) -> list[list[Instruction]]:
        return stacks(self._program)

    @cached_property
    def _number(self) -> dict[int, int]:
        return {id(instruction): number for number, instruction in enumerate(self._program.code)}

    def run(self, inputs: Mapping[str, Array]) -> Iterator[Step]:
        """Run kernel by kernel; `inputs` are logical arrays by name."""
        arena, tensors, wanted, table = self._memory(inputs)
        for group in self._stacks:
            self._step(group, arena, wanted, table)
            yield Step(tuple(group), {b.name: self._read(b, arena, tensors) for b in self._left(group)})

    def _step(
        self, group: list[Instruction], arena: Array, wanted: Array, table: ctypes.Array[ctypes.c_void_p]
    ) -> None:
        wanted[0] = self._number[id(group[0])]
        end = [address or 0 for address in table[len(self._places) : -1]]
        memory = arena.ctypes.data, self._weights.ctypes.data, ctypes.addressof(table)
        self._host.checked(end, lambda: self._run(*memory))()

    def _memory(
        self, inputs: Mapping[str, Array]
    ) -> tuple[Array, dict[str, Array], Array, ctypes.Array[ctypes.c_void_p]]:
        """Memory of a run: arena, placeholder tensors, number of the step, and the table of addresses."""
        arena = aligned_bytes(self._arena_size)
        tensors = {buffer.name: aligned_tensor(buffer.type) for buffer in self._program.placeholders}
        for buffer in self._program.inputs():
            given = to_physical(np.ascontiguousarray(inputs[buffer.name]), buffer.type, self._bias)
            tensors[buffer.name].reshape(-1).view(np.uint8)[:] = given.reshape(-1).view(np.uint8)
        wanted = np.zeros(1, np.uint64)
        addresses = [tensors[name].ctypes.data for name in self._places]
        addresses += [*self._host.addresses(), wanted.ctypes.data]
        table = (ctypes.c_void_p * len(addresses))(*addresses)
        return arena, tensors, wanted, table

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

    def _read(self, buffer: Buffer, arena: Array, tensors: Mapping[str, Array]) -> Array:
        seen = self._seen(buffer, arena, tensors)
        return to_logical(seen.copy(), buffer.type, self._bias).reshape(buffer.type.shape)

    def _seen(self, buffer: Buffer, arena: Array, tensors: Mapping[str, Array]) -> Array:
        """View of the elements of a buffer in place."""
        root, layout, dtype = buffer.root, buffer.layout, buffer.type.element.dtype
        if root.kind is BufferKind.ACTIVATION:
            memory, start = arena, root.arena_offset or 0
        else:
            memory, start = tensors[root.name].reshape(-1).view(np.uint8), 0
        strides = tuple(stride * dtype.itemsize for stride in layout.strides)
        offset = start + layout.offset * dtype.itemsize
        seen: Array = np.ndarray(buffer.type.shape, dtype, memory.data, offset, strides)
        return seen


def _fits(buffer: Buffer, data: Array) -> bool:
    """Whether an array can take the place of a constant's contents."""
    return buffer.type.shape == data.shape and buffer.type.element.dtype == data.dtype
