"""A program as one LLVM module: a function a kernel, and an entry that calls them in order.

    void qglow_run(i8* arena, i8* weights, i8** placeholders)

Instructions of equal operation, types, layouts and kernel share one function, and so do equal
stacks. The entry gives itself the default floating-point environment (round to nearest,
denormals kept) and restores the caller's on the way out.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from qglow.codegen.calls import Call, make_call
from qglow.codegen.weights import WeightBlob
from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.instructions.liveness import Usage
from qglow.instructions.passes.stacking import stacks
from qglow.instructions.program import Buffer, BufferKind, Program
from qglow.kernels import families as families
from qglow.kernels.builder import I32, I64, PTR, VOID, Emitter
from qglow.kernels.isa import Isa
from qglow.kernels.operand import to_physical

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
    adds the cycles that the instruction took; of a stack, to that of its first.
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
        usage = Usage(self.program)
        numbers = {id(instruction): number for number, instruction in enumerate(self.program.code)}
        for group in stacks(self.program):
            self._timed_call(e, numbers[id(group[0])], make_call(group, usage, self.isa))
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

    def _timed_call(self, e: Emitter, number: int, call: Call) -> None:
        if not self.timed:
            self._call(e, call)
            return
        before = e.call("llvm.readcyclecounter", I64, [])
        self._call(e, call)
        taken = e.b.sub(e.call("llvm.readcyclecounter", I64, []), before)
        slot = e.offset(self.tables[-1], 8 * number)
        e.store(e.b.add(e.load(slot, I64), taken), slot)

    def _call(self, e: Emitter, call: Call) -> None:
        arguments = [self._address(e, buffer) for buffer in call.buffers]
        arguments += [e.offset(self.weights, self.blob.add(array)) for array in call.arrays]
        e.b.call(self._function(call), arguments)

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
            stored = to_physical(buffer.data, buffer.type, self.isa.activation_bias)
            self.constants[buffer] = self.blob.add(stored)
        return self.constants[buffer]

    def _function(self, call: Call) -> Any:
        unaliased = call.unaliased
        key = (*call.key, unaliased)
        if key not in self.functions:
            self.functions[key] = self._emit(call, unaliased)
        return self.functions[key]

    def _emit(self, call: Call, unaliased: tuple[bool, ...]) -> Any:
        count = len(call.buffers)
        kinds = [PTR] * (count + len(call.arrays))
        name = f"kernel{len(self.functions)}_{call.name}"
        function = ir.Function(self.module, ir.FunctionType(VOID, kinds), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        for argument, alone in zip(function.args, [*unaliased, *(True for _ in call.arrays)], strict=True):
            if alone:
                argument.add_attribute("noalias")
        e = Emitter(function, self.isa)
        call.emit(e, function.args[:count], function.args[count:])
        e.b.ret_void()
        return function
