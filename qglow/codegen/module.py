"""A program as LLVM modules: a function a kernel, and entries, in the last module, that call them in order.

    void qglow_run(i8* arena, i8* weights, i8** placeholders)
    void qglow_share(i8* arena, i8* weights, i8** placeholders, i8* team, i64 me)

Instructions of equal operation, types, layouts and kernel share one function, and so do equal
stacks. The last arguments of a kernel are which part of its work to do and how many parts there
are. Each thread of a team calls `qglow_share` with its number; the number of threads is in the
team's memory, so one code serves any. Programs that are too small to be shared have no such
entry. Entries give themselves the default floating-point environment (round to nearest,
denormals kept) and restore the caller's on the way out.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from qglow.codegen.calls import Call, make_call
from qglow.codegen.functions import MODULE_SIZE, KernelFunctions
from qglow.codegen.steps import PART_CYCLES, Step, Work, is_worth_a_team, make_steps
from qglow.codegen.team import NONE, Team
from qglow.codegen.weights import WeightBlob
from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.instructions.liveness import Usage
from qglow.instructions.passes.stacking import stacks
from qglow.instructions.program import Buffer, BufferKind, Program
from qglow.instructions.text import print_program
from qglow.kernels import families as families
from qglow.kernels.builder import I32, I64, PTR, VOID, Emitter, Value
from qglow.kernels.isa import Isa
from qglow.kernels.operand import to_physical

ENTRY = "qglow_run"
TEAM_ENTRY = "qglow_share"
DEFAULT_MXCSR = 0x1F80
"""Round to nearest even, denormals kept, all exceptions masked."""


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


@dataclass(frozen=True)
class _Roots:
    """Where operands are, inside an entry: the addresses it is called with."""

    arena: Value
    weights: Value
    tables: list[Value]


class ModuleBuilder:
    """Emits a program whose kernels are selected and whose memory is planned.

    `timed`: a last pointer of the table leads to one u64 an instruction, to which the entry
    adds the cycles that the instruction took; of a stack, to that of its first. There is no
    entry for teams then. `part_cycles`: the least estimated work that is worth a part; with 0
    everything is shared that can be. `module_size`: the instructions of LLVM from which on kernels
    go into a further module. Raises InternalError where selection or planning is missing.

    `placeholders` are their names in the order of the pointer table.
    """

    def __init__(
        self,
        program: Program,
        isa: Isa,
        timed: bool = False,
        part_cycles: float = PART_CYCLES,
        module_size: float = MODULE_SIZE,
    ) -> None:
        self.program, self.isa, self.timed, self.part_cycles = program, isa, timed, part_cycles
        self.module_size = module_size
        self.is_shared = False
        self.blob = WeightBlob()
        self.constants: dict[Buffer, int] = {}
        self.stored: dict[Call, list[int]] = {}
        self.places = {buffer: i for i, buffer in enumerate(program.placeholders)}
        self.placeholders = tuple(buffer.name for buffer in program.placeholders)
        usage = Usage(program)
        self.calls = [make_call(group, usage, isa) for group in stacks(program)]
        self.functions = KernelFunctions(program.name, self.calls, isa, module_size)
        self._place_constants()

    def _place_constants(self) -> None:
        """Where all constants are, in the order in which they are needed."""
        for call in self.calls:
            for buffer in call.buffers:
                if buffer.root.kind is BufferKind.CONSTANT:
                    self._constant(buffer.root)
            self._stored(call)

    @property
    def content(self) -> str:
        """All that the text is made of, which takes far less time to write than the text."""
        settings = f"timed {self.timed} part {self.part_cycles!r} module {self.module_size!r}"
        return "\n".join([settings, print_program(self.program), *self.blob.contents()])

    def weights(self) -> Array:
        """The constants that the code expects at `weights`."""
        return self.blob.finish()

    def modules(self) -> Generator[str, None, None]:
        """LLVM text of every module, each as soon as it is whole. To be asked for once.

        The entries are in the last. Then `is_shared` says whether there is one for teams of threads.
        """
        with _collection_paused():
            for call in self.calls:
                full = self.functions.add(call)
                if full is not None:
                    yield full
            yield self._last_module()

    def _last_module(self) -> str:
        self._emit_entry(self.calls)
        work = [Work.of(call, self.functions[call].units, self.part_cycles) for call in self.calls]
        steps = make_steps(work, self.part_cycles)
        self.is_shared = not self.timed and is_worth_a_team(steps, self.part_cycles)
        if self.is_shared:
            self._emit_team_entry(steps)
        return str(self.functions.module)

    def _emit_entry(self, calls: list[Call]) -> None:
        """The entry for one thread, which does all parts."""
        numbers = {id(instruction): number for number, instruction in enumerate(self.program.code)}
        with self._entry(ENTRY, []) as (e, roots, _):
            whole = e.index(0), e.index(1)
            for call in calls:
                self._timed_call(e, roots, numbers[id(call.group[0])], call, whole)

    def _emit_team_entry(self, steps: list[Step]) -> None:
        """The entry for a thread of a team."""
        with self._entry(TEAM_ENTRY, [PTR, I64]) as (e, roots, (memory, me)):
            team = Team(e, memory, me)
            for number, step in enumerate(steps):
                self._emit_step(e, roots, team, number, step)

    def _emit_step(self, e: Emitter, roots: _Roots, team: Team, number: int, step: Step) -> None:
        shares = team.parts(step.parts)
        parts = e.plus(shares, int(step.apart))
        take, work, done = (e.b.append_basic_block(f"step{number}.{n}") for n in ("take", "work", "done"))
        e.b.branch(take)
        e.b.position_at_end(take)
        part = team.take(number, parts)
        e.b.cbranch(e.b.icmp_signed("==", part, e.index(NONE)), done, work)
        e.b.position_at_end(work)
        first = e.b.icmp_signed("==", part, e.index(0))
        with e.b.if_else(first) as (then, otherwise):
            with then:
                for call in step.alone:
                    self._call(e, roots, call, (e.index(0), e.index(1)))
                if not step.apart:
                    self._call_all(e, roots, step.shared, (e.index(0), shares))
            with otherwise:
                self._call_all(e, roots, step.shared, (e.plus(part, -int(step.apart)), shares))
        team.finish(number, parts)
        e.b.branch(take)
        e.b.position_at_end(done)

    def _call_all(self, e: Emitter, roots: _Roots, calls: Sequence[Call], share: tuple[Value, Value]) -> None:
        for call in calls:
            self._call(e, roots, call, share)

    @contextmanager
    def _entry(self, name: str, more: list[Any]) -> Iterator[tuple[Emitter, _Roots, list[Value]]]:
        """A function of the module's interface: its body goes between the change of environment."""
        entry = ir.Function(self.functions.module, ir.FunctionType(VOID, [PTR, PTR, PTR, *more]), name)
        entry.attributes.add("nounwind")
        e = Emitter(entry, self.isa)
        arena, weights, table, *others = entry.args
        tables = [e.load(e.offset(table, 8 * i), PTR) for i in range(len(self.places) + self.timed)]
        saved = self._enter_float_environment(e)
        yield e, _Roots(arena, weights, tables), others
        e.call("llvm.x86.sse.ldmxcsr", VOID, [saved])
        e.b.ret_void()

    def _enter_float_environment(self, e: Emitter) -> Any:
        saved, wanted = e.b.alloca(I32), e.b.alloca(I32)
        e.call("llvm.x86.sse.stmxcsr", VOID, [saved])
        e.store(ir.Constant(I32, DEFAULT_MXCSR), wanted)
        e.call("llvm.x86.sse.ldmxcsr", VOID, [wanted])
        return saved

    def _timed_call(
        self, e: Emitter, roots: _Roots, number: int, call: Call, share: tuple[Value, Value]
    ) -> None:
        if not self.timed:
            self._call(e, roots, call, share)
            return
        before = e.call("llvm.readcyclecounter", I64, [])
        self._call(e, roots, call, share)
        taken = e.b.sub(e.call("llvm.readcyclecounter", I64, []), before)
        slot = e.offset(roots.tables[-1], 8 * number)
        e.store(e.b.add(e.load(slot, I64), taken), slot)

    def _call(self, e: Emitter, roots: _Roots, call: Call, share: tuple[Value, Value]) -> None:
        """`share`: which part, and of how many."""
        arguments = [self._address(e, roots, buffer) for buffer in call.buffers]
        arguments += [e.offset(roots.weights, offset) for offset in self._stored(call)]
        e.b.call(self.functions.callee(call), [*arguments, *share])

    def _stored(self, call: Call) -> list[int]:
        """Where the packed constants of a call are."""
        if call not in self.stored:
            self.stored[call] = [self.blob.add(array) for array in call.arrays]
        return self.stored[call]

    def _address(self, e: Emitter, roots: _Roots, buffer: Buffer) -> Value:
        """The address of element (0, ..., 0)."""
        root = buffer.root
        start = buffer.layout.offset * buffer.type.element.size
        if root.kind is BufferKind.PLACEHOLDER:
            return e.offset(roots.tables[self.places[root]], start)
        if root.kind is BufferKind.CONSTANT:
            return e.offset(roots.weights, self._constant(root) + start)
        if root.arena_offset is None:
            raise InternalError(f"%{root.name} has no place in the arena; memory is not planned")
        return e.offset(roots.arena, root.arena_offset + start)

    def _constant(self, buffer: Buffer) -> int:
        if buffer not in self.constants:
            if buffer.data is None:
                raise InternalError(f"constant %{buffer.name} has no data")
            stored = to_physical(buffer.data, buffer.type, self.isa.activation_bias)
            self.constants[buffer] = self.blob.add(stored)
        return self.constants[buffer]
