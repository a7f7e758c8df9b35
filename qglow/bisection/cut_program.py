"""A few instructions of a program as a program of their own, with what they read as inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qglow.bisection.texts import copy_program
from qglow.core.types import Array
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.operation import Access
from qglow.instructions.ops.memory import Copy
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program

BEFORE = ".before"
"""Ends the names of inputs that hold what a buffer has before the instructions change it."""


def executed(program: Program) -> list[Instruction]:
    """The instructions that do something, in order."""
    return [i for i in program.code if i.operation.touches_memory]


def cut(
    program: Program, first: int, last: int, inputs: Mapping[str, Array]
) -> tuple[Program, dict[str, Array]]:
    """Instructions `first` to `last`, of those in `executed`, as a program, and inputs for it.

    program: lowered, without kernels. inputs: of the program; the arena interpreter works out what the
    instructions read. Everything that they leave and others read is an output.
    """
    instructions = executed(program)
    chosen = instructions[first : last + 1]
    contents = _contents_before(program, instructions[first].name, inputs)
    made = _Cut(program, chosen, instructions[last + 1 :])
    return made.build(), {name: contents[root] for name, root in made.inputs.items()}


def _contents_before(program: Program, stop: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Logical contents of every root buffer, by name, when an instruction is about to run."""
    planned = copy_program(program)
    plan_memory(planned)
    contents = {b.name: np.asarray(inputs[b.name], order="C") for b in planned.inputs()}
    reached = False

    def tap(instruction: Instruction, arrays: dict[str, Array]) -> None:
        nonlocal reached
        reached = reached or instruction.name == stop
        for buffer in instruction.writes():
            if reached:
                return
            root = buffer.root
            if root.name not in contents:
                contents[root.name] = np.zeros(root.type.shape, root.type.element.dtype)
            _window(contents[root.name], buffer)[...] = arrays[buffer.name]

    ArenaInterpreter(planned).run(inputs, tap)
    for root in {buffer.root for buffer in planned.all_buffers()}:
        if root.name not in contents and root.kind is not BufferKind.CONSTANT:
            contents[root.name] = np.zeros(root.type.shape, root.type.element.dtype)
    return contents


def _window(whole: Array, buffer: Buffer) -> Array:
    layout = buffer.layout
    strides = tuple(stride * whole.itemsize for stride in layout.strides)
    return np.ndarray(buffer.type.shape, whole.dtype, whole.data, layout.offset * whole.itemsize, strides)


class _Cut:
    """Builds the program. `inputs` maps the names of its inputs to those of the buffers they stand for."""

    def __init__(self, program: Program, chosen: Sequence[Instruction], later: Sequence[Instruction]) -> None:
        self._builder = ProgramBuilder(f"{program.name}.cut")
        self._chosen = chosen
        self._read_later = {b.root for i in later for b in i.reads()}
        self._made: dict[Buffer, Buffer] = {}
        self.inputs: dict[str, str] = {}

    def build(self) -> Program:
        """The program."""
        roots = dict.fromkeys(b.root for i in self._chosen for b, _ in i.accesses() if not _is_scratch(i, b))
        for root in roots:
            self._made[root] = self._root(root)
        for instruction in self._chosen:
            buffers = [
                self._scratch(instruction, b)
                if b is not None and _is_scratch(instruction, b)
                else self._kept(b)
                for b in instruction.buffers
            ]
            made = self._builder.emit(
                instruction.name, instruction.operation, *buffers, origin=instruction.origin
            )
            made.stack = instruction.stack
        return self._builder.finish()

    def _root(self, root: Buffer) -> Buffer:
        builder = self._builder
        if root.kind is BufferKind.CONSTANT:
            assert root.data is not None
            return builder.constant(root.name, root.data, root.type.quantization)
        if not self._is_written(root):
            return self._input(root.name, root)
        if not self._needs_contents(root):
            passed_on = any(root in {b.root for b in i.reads()} for i in self._chosen)
            if root.kind is BufferKind.ACTIVATION and passed_on and root not in self._read_later:
                return builder.activation(root.name, root.type)
            return builder.placeholder(root.name, root.type)
        before = self._input(f"{root.name}{BEFORE}", root)
        made = builder.placeholder(root.name, root.type)
        builder.emit(f"{root.name}.fill", Copy(), made, before)
        return made

    def _input(self, name: str, root: Buffer) -> Buffer:
        made = self._builder.placeholder(name, root.type)
        self.inputs[made.name] = root.name
        return made

    def _buffer(self, buffer: Buffer) -> Buffer:
        if buffer not in self._made:
            assert buffer.base is not None
            base = self._buffer(buffer.base)
            self._made[buffer] = self._builder.view(buffer.name, base, buffer.type, buffer.offsets)
        return self._made[buffer]

    def _kept(self, buffer: Buffer | None) -> Buffer | None:
        return None if buffer is None else self._buffer(buffer)

    def _scratch(self, instruction: Instruction, buffer: Buffer) -> Buffer | None:
        """Memory for programs inside, whose size the memory plan sets; other kinds come with kernels."""
        if not instruction.operation.body_names:
            return None
        return self._builder.activation(buffer.name, buffer.type.with_shape((0,)))

    def _is_written(self, root: Buffer) -> bool:
        return any(b.root is root for i in self._chosen for b in i.writes())

    def _needs_contents(self, root: Buffer) -> bool:
        """Whether something of the buffer is read, or left, that the instructions have not written before."""
        for instruction in self._chosen:
            accesses = [(b, access) for b, access in instruction.accesses() if b.root is root]
            if any(access in (Access.IN, Access.INOUT) for _, access in accesses):
                return True
            if any(b is root or b.type.size == root.type.size for b, _ in accesses):
                return False
        return True


def _is_scratch(instruction: Instruction, buffer: Buffer) -> bool:
    return any(b is buffer and access is Access.SCRATCH for b, access in instruction.accesses())
