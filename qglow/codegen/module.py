"""A program as one LLVM module: a function a kernel, and an entry that calls them in order.

    void qglow_run(i8* arena, i8* weights, i8** placeholders)

Instructions of equal operation, types, layouts and kernel share one function; what differs,
the addresses, comes in as arguments. The entry gives itself the default floating-point
environment (round to nearest, denormals kept) and restores the caller's on the way out.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from qglow.codegen.weights import WeightBlob
from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program
from qglow.kernels import families as families
from qglow.kernels.builder import I32, I64, PTR, VOID, Emitter
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, parse_kernel
from qglow.kernels.operand import Memory, memory_of, to_physical

ENTRY = "qglow_run"
DEFAULT_MXCSR = 0x1F80
"""Round to nearest even, denormals kept, all exceptions masked."""


@dataclass(frozen=True)
class ProgramModule:
    """LLVM text of a program, and the constants that its code expects at `weights`.

    `placeholders` are their names in the order of the pointer table.
    """

    text: str
    weights: Array
    arena_size: int
    placeholders: tuple[str, ...]


def build_module(program: Program, isa: Isa, timed: bool = False) -> ProgramModule:
    """Emit a program whose kernels are selected and whose memory is planned.

    `timed`: a last pointer of the table leads to one u64 an instruction, to which the entry
    adds the cycles that the instruction took.
    Raises InternalError where selection or planning is missing.
    """
    with _collection_paused():
        return _ModuleBuilder(program, isa, timed).build()


@contextmanager
def _collection_paused() -> Iterator[None]:
    """No garbage collection meanwhile: emission makes objects by the hundred thousand that all
    live to its end, and walking them again and again would take longer than making them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _ModuleBuilder:
    def __init__(self, program: Program, isa: Isa, timed: bool) -> None:
        self.program, self.isa, self.timed = program, isa, timed
        self.blob = WeightBlob()
        self.module = ir.Module(program.name)
        self.module.triple = isa.triple
        self.functions: dict[object, Any] = {}
        self.constants: dict[Buffer, int] = {}
        self.places = {buffer: i for i, buffer in enumerate(program.placeholders)}

    def build(self) -> ProgramModule:
        signature = ir.FunctionType(VOID, [PTR, PTR, PTR])
        entry = ir.Function(self.module, signature, ENTRY)
        entry.attributes.add("nounwind")
        e = Emitter(entry, self.isa)
        self.arena, self.weights, table = entry.args
        self.tables = [e.load(e.offset(table, 8 * i), PTR) for i in range(len(self.places) + self.timed)]
        saved = self._enter_float_environment(e)
        for number, instruction in enumerate(self.program.code):
            if instruction.operation.touches_memory:
                self._timed_call(e, number, instruction)
        e.call("llvm.x86.sse.ldmxcsr", VOID, [saved])
        e.b.ret_void()
        names = tuple(buffer.name for buffer in self.program.placeholders)
        size = self.program.arena_size or 0
        return ProgramModule(str(self.module), self.blob.finish(), size, names)

    def _enter_float_environment(self, e: Emitter) -> Any:
        saved, wanted = e.b.alloca(I32), e.b.alloca(I32)
        e.call("llvm.x86.sse.stmxcsr", VOID, [saved])
        e.store(ir.Constant(I32, DEFAULT_MXCSR), wanted)
        e.call("llvm.x86.sse.ldmxcsr", VOID, [wanted])
        return saved

    def _timed_call(self, e: Emitter, number: int, instruction: Instruction) -> None:
        if not self.timed:
            self._call(e, instruction)
            return
        before = e.call("llvm.readcyclecounter", I64, [])
        self._call(e, instruction)
        taken = e.b.sub(e.call("llvm.readcyclecounter", I64, []), before)
        slot = e.offset(self.tables[-1], 8 * number)
        e.store(e.b.add(e.load(slot, I64), taken), slot)

    def _call(self, e: Emitter, instruction: Instruction) -> None:
        if not instruction.kernel:
            raise InternalError(f"{instruction.name} has no kernel; selection has not run")
        kernel = parse_kernel(instruction.kernel)
        packed = kernel.constants(instruction, self.isa)
        operands = _operands(instruction, packed)
        function = self._function(instruction, kernel, packed, operands)
        arguments = [self._address(e, buffer) for buffer in operands.values()]
        arguments += [e.offset(self.weights, self.blob.add(array)) for array in packed.values()]
        e.b.call(function, arguments)

    def _address(self, e: Emitter, buffer: Buffer) -> Any:
        """The address of element (0, ..., 0)."""
        root = buffer.root
        start = buffer.layout.offset * buffer.type.element.size
        if root.kind is BufferKind.PLACEHOLDER:
            return e.offset(self.tables[self.places[root]], start)
        if root.kind is BufferKind.CONSTANT:
            return e.offset(self.weights, self._constant(root) + start)
        if root.arena_offset is None:
            raise InternalError(f"%{root.name} has no place in the arena; memory is not planned")
        return e.offset(self.arena, root.arena_offset + start)

    def _constant(self, buffer: Buffer) -> int:
        if buffer not in self.constants:
            if buffer.data is None:
                raise InternalError(f"constant %{buffer.name} has no data")
            self.constants[buffer] = self.blob.add(
                to_physical(buffer.data, buffer.type, self.isa.activation_bias)
            )
        return self.constants[buffer]

    def _function(
        self,
        instruction: Instruction,
        kernel: Kernel,
        packed: dict[str, Array],
        operands: dict[str, Buffer],
    ) -> Any:
        alone = [_overlaps_none(name, operands) for name in operands]
        key = (
            instruction.operation,
            instruction.kernel,
            tuple((n, memory_of(None, b, self.isa)) for n, b in operands.items()),
            tuple((n, a.shape, a.dtype.str) for n, a in packed.items()),
            tuple(alone),
        )
        if key not in self.functions:
            self.functions[key] = self._emit(instruction, kernel, list(packed), operands, alone)
        return self.functions[key]

    def _emit(
        self,
        instruction: Instruction,
        kernel: Kernel,
        packed: list[str],
        operands: dict[str, Buffer],
        alone: list[bool],
    ) -> Any:
        kinds = [PTR] * (len(operands) + len(packed))
        name = f"kernel{len(self.functions)}_{instruction.operation.opcode}"
        function = ir.Function(self.module, ir.FunctionType(VOID, kinds), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        for argument, noalias in zip(function.args, [*alone, *(True for _ in packed)], strict=True):
            if noalias:
                argument.add_attribute("noalias")
        e = Emitter(function, self.isa)
        pointers = dict(zip([*operands, *packed], function.args, strict=True))
        memories: dict[str, Memory] = {
            n: memory_of(pointers[n], buffer, self.isa) for n, buffer in operands.items() if n != "scratch"
        }
        constants = {n: pointers[n] for n in packed}
        kernel.emit(Site(e, instruction, self.isa, memories, constants, pointers.get("scratch")))
        e.b.ret_void()
        return function


def _operands(instruction: Instruction, packed: dict[str, Array]) -> dict[str, Buffer]:
    """The present operands that stay operands, by name."""
    pairs = zip(instruction.operation.signature, instruction.buffers, strict=True)
    return {spec.name: b for spec, b in pairs if b is not None and spec.name not in packed}


def _overlaps_none(name: str, operands: dict[str, Buffer]) -> bool:
    """Whether no other operand shares memory with this one."""
    mine = _extent(operands[name])
    return all(not _meet(mine, _extent(other)) for key, other in operands.items() if key != name)


def _extent(buffer: Buffer) -> tuple[Buffer, int, int]:
    root = buffer.root
    start = root.arena_offset or 0
    return root, start, start + root.byte_size


def _meet(left: tuple[Buffer, int, int], right: tuple[Buffer, int, int]) -> bool:
    if left[0] is right[0]:
        return True
    both = left[0].kind is BufferKind.ACTIVATION and right[0].kind is BufferKind.ACTIVATION
    return both and left[1] < right[2] and right[1] < left[2]
