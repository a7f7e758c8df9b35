"""A program as LLVM modules: one for each kernel, and a last one with entries that call them in order.

    void qglow_run(i8* arena, i8* weights, i8** placeholders)
    void qglow_share(i8* arena, i8* weights, i8** placeholders, i8* team, i64 me)

Instructions of equal operation, types, layouts and kernel share one function, and so do equal
stacks. The last arguments of a kernel are the number of the part of its work to do, and the number
of parts; before them come numbers of live places, where only some elements matter. Each thread of
a team calls `qglow_share` with its number; the number of threads is in the team's memory, so the same
code serves any. Programs that are too small to be shared have no such
entry. Entries set the default floating-point environment (round to nearest, denormals kept) and
restore the caller's before they return.

Instructions that Python executes are calls of a function whose address follows those of the placeholders:

    void host(i64 node, i8** operands, i64 call)

`node` is the instruction's number among those of this kind, `operands` leads to the addresses of its results
and arguments, and `call` is the word behind the function's address.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from qglow.codegen.cache import KernelCache
from qglow.codegen.calling import CallEmitter
from qglow.codegen.calls import Call, make_calls
from qglow.codegen.functions import BATCH_SIZE, Batch, Functions, JointFunctions, KernelFunctions
from qglow.codegen.places import OperandPlaces, Roots, with_bodies
from qglow.codegen.slots import CallSlots
from qglow.codegen.steps import ProgramStep, Work, is_worth_a_team, make_steps
from qglow.codegen.team import NONE, Team
from qglow.codegen.weights import WeightBlob
from qglow.core.text import format_attributes
from qglow.core.types import Array
from qglow.instructions.program import Program
from qglow.instructions.text import print_program
from qglow.kernels.emit.builder import I64, PTR, VOID, Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.selection import families as families

ENTRY = "qglow_run"
TEAM_ENTRY = "qglow_share"
SECTION = 250
"""Most calls, or steps of a team, in one function; longer entries are split into several."""


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Pause garbage collection: emission makes objects by the hundred thousand that all live to its end,
    and walking them again and again would take longer than making them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class ModuleBuilder:
    """Emits a program whose kernels are selected and whose memory is planned.

    `timed`: one more pointer at the end of the table leads to one u64 for each instruction, to which the
    entry adds the cycles that the instruction took; those of a stack count for its first instruction.
    `stepped`: one more pointer at the end of the table leads to a u64, the number of the one instruction
    (for a stack, of its first) that the entry executes. In both cases there is no entry for teams.

    `part_cycles`: the least estimated cycles that are worth a part; 0 shares everything that can be
    shared, None takes the value of the target's model. `placeholders` are their names in the order of the
    pointer table. blob: takes the constants; other programs may have added theirs. alone: no entry for teams.
    Raises InternalError if selection or planning is missing.
    """

    def __init__(
        self,
        program: Program,
        target: VectorTarget,
        timed: bool = False,
        part_cycles: float | None = None,
        stepped: bool = False,
        blob: WeightBlob | None = None,
        alone: bool = False,
    ) -> None:
        self.program, self.target, self.timed = program, target, timed
        self.part_cycles = target.model.threads.part_cycles if part_cycles is None else part_cycles
        self.stepped = stepped
        self.is_shared = False
        self._alone = alone or timed or stepped
        self._steps: list[ProgramStep] = []
        # Constants of a program that stops after every kernel can be exchanged for others of the same sizes.
        self.blob = WeightBlob(shared=not stepped) if blob is None else blob
        self.placeholders = tuple(buffer.name for buffer in program.placeholders)
        self.calls = make_calls(program, target)
        self.places = OperandPlaces(self.calls, program.placeholders, self.blob, target.activation_bias)
        self.hosted = [call for call in with_bodies(self.calls) if call.hosted]

    @property
    def _compiled_calls(self) -> list[Call]:
        return [call for call in with_bodies(self.calls) if call.has_function]

    @property
    def content(self) -> str:
        """Everything that the text is made from, for cache keys: it is far faster to write than the text."""
        kind = "stepped" if self.stepped else f"timed {self.timed}"
        settings = f"{kind} part {self.part_cycles!r}"
        # Equal contents are stored once, so that digests alone do not tell which constant is whose.
        offsets = repr(self.places.offsets())
        return "\n".join([settings, print_program(self.program), offsets, *self.blob.contents()])

    def slots(self) -> tuple[CallSlots, ...]:
        """Slots of the constants of every call, in the order of the calls."""
        return tuple(self.places.slots(call) for call in self.calls)

    def weights(self) -> Array:
        """The constants that the code expects at `weights`."""
        return self.blob.finish()

    @property
    def steps(self) -> Sequence[ProgramStep]:
        """The steps of threads, once the program is emitted."""
        return self._steps

    def emit_calls(
        self,
        e: Emitter,
        memory: tuple[Value, Value, Value],
        calls: Sequence[Call],
        share: tuple[Value, Value],
    ) -> None:
        """Emit calls into a function of the joint module. memory: arena, weights and table of placeholders.

        share: the number of the part to do, and the number of parts.
        """
        arena, weights, table = memory
        self._calls.emit_all(e, Roots(e, arena, weights, table, len(self.placeholders)), calls, share)

    def functions(self, cache: KernelCache | None, batch_size: float = BATCH_SIZE) -> KernelFunctions:
        """The functions that the program calls, to be given to `batches`, none of them emitted yet."""
        return KernelFunctions(self._compiled_calls, self.target, cache, batch_size)

    def batches(self, functions: KernelFunctions) -> Generator[Batch, None, None]:
        """LLVM texts of functions without cached code, in batches as they become full; last, the entries.

        When it ends, `is_shared` says whether there is an entry for teams of threads. The entries are left
        out where their code is cached.
        """
        with _collection_paused():
            for call in self._compiled_calls:
                full = functions.add(call)
                if full is not None:
                    yield full
            self._plan_steps(functions)
            known = functions.knows_entries(self._entries_key(functions))
            yield (*functions.rest(), *([] if known else [self._entries(self._new_module(), functions)]))

    def _entries_key(self, functions: Functions) -> tuple[object, ...]:
        """Everything that the text of the entries depends on, for one target."""
        calls = {call: number for number, call in enumerate(self.calls)}
        numbers = {id(instruction): number for number, instruction in enumerate(self.program.code)}
        called = tuple((self._call_key(functions, call), numbers[id(call.group[0])]) for call in self.calls)
        steps = tuple(
            (
                tuple(calls[c] for c in step.alone),
                tuple(calls[c] for c in step.shared),
                step.parts,
                step.apart,
            )
            for step in self._steps
        )
        return "entries", self.timed, self.stepped, len(self.placeholders), called, self.is_shared and steps

    def _call_key(self, functions: Functions, call: Call) -> tuple[object, ...]:
        """Everything that the text of a call depends on."""
        operation = call.group[0].operation
        return (
            functions[call].name if call.has_function else operation.opcode + format_attributes(operation),
            tuple(self.places.place(buffer) for buffer in call.buffers),
            tuple(buffer.type.byte_size for buffer in call.buffers if call.bodies),
            tuple(self.places.packed(call)),
            tuple(self.places.place(count) for count in call.counts),
            tuple(tuple(self._call_key(functions, inner) for inner in body) for body in call.bodies),
        )

    def text(self) -> str:
        """LLVM text of the whole program as one module, to be read."""
        with _collection_paused():
            return str(self.joint_module())

    def joint_module(self) -> Any:
        """The whole program as one LLVM module, whose kernels nothing outside of it sees."""
        module = self._new_module()
        functions = JointFunctions(self._compiled_calls, self.target, module)
        self._plan_steps(functions)
        self._add_entries(module, functions)
        return module

    def _new_module(self) -> Any:
        # Not the model's name, which is untrusted text.
        module = ir.Module("program")
        module.triple = self.target.triple
        return module

    def _entries(self, module: Any, functions: Functions) -> str:
        """Add the entries to a module and return its text."""
        self._add_entries(module, functions)
        return str(module)

    def _add_entries(self, module: Any, functions: Functions) -> None:
        self._module = module
        self._calls = CallEmitter(module, functions, self.target, self.places, self.hosted)
        self._emit_entry(self.calls)
        if self.is_shared:
            self._emit_team_entry(self._steps)

    def _plan_steps(self, functions: Functions) -> None:
        """Divide the calls into steps of a team, and decide whether there is an entry for teams."""
        work = [
            Work(call, 1, 1)
            if not call.has_function
            else Work.of(call, functions[call].units, self.part_cycles)
            for call in self.calls
        ]
        self._steps = make_steps(work, self.part_cycles)
        team_cycles = self.target.model.threads.team_parts * self.part_cycles
        self.is_shared = not self._alone and is_worth_a_team(self._steps, team_cycles)

    def _emit_entry(self, calls: list[Call]) -> None:
        """The entry for one thread, which does all parts."""
        numbers = {id(instruction): number for number, instruction in enumerate(self.program.code)}
        with self._entry(ENTRY, []) as (e, given):
            for first in range(0, len(calls), SECTION):
                with self._section(e, given, len(calls), first) as (inner, roots, _):
                    whole = inner.index(0), inner.index(1)
                    for call in calls[first : first + SECTION]:
                        self._timed_call(inner, roots, numbers[id(call.group[0])], call, whole)

    def _emit_team_entry(self, steps: list[ProgramStep]) -> None:
        """The entry for a thread of a team."""
        with self._entry(TEAM_ENTRY, [PTR, I64]) as (e, given):
            for first in range(0, len(steps), SECTION):
                with self._section(e, given, len(steps), first) as (inner, roots, (memory, me)):
                    team = Team(inner, memory, me)
                    for number, step in enumerate(steps[first : first + SECTION], first):
                        self._emit_step(inner, roots, team, number, step)

    def _emit_step(self, e: Emitter, roots: Roots, team: Team, number: int, step: ProgramStep) -> None:
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
                    self._calls.emit(e, roots, call, (e.index(0), e.index(1)))
                if not step.apart:
                    self._calls.emit_all(e, roots, step.shared, (e.index(0), shares))
            with otherwise:
                self._calls.emit_all(e, roots, step.shared, (e.plus(part, -int(step.apart)), shares))
        team.finish(number, parts)
        e.b.branch(take)
        e.b.position_at_end(done)

    @contextmanager
    def _entry(self, name: str, more: list[Any]) -> Iterator[tuple[Emitter, list[Value]]]:
        """An exported function: its body runs in the default floating-point environment."""
        entry = ir.Function(self._module, ir.FunctionType(VOID, [PTR, PTR, PTR, *more]), name)
        entry.attributes.add("nounwind")
        e = Emitter(entry, self.target)
        saved = self.target.enter_float_environment(e)
        yield e, list(entry.args)
        self.target.leave_float_environment(e, saved)
        e.b.ret_void()

    @contextmanager
    def _section(
        self, e: Emitter, given: list[Value], count: int, first: int
    ) -> Iterator[tuple[Emitter, Roots, list[Value]]]:
        """The part of an entry that starts at number `first` of `count`.

        It is a function of its own if there are several: LLVM takes more than twice as long for a
        function that is twice as long.
        """
        if count <= SECTION:
            yield self._with_roots(e, given)
            return
        kind = ir.FunctionType(VOID, [value.type for value in given])
        function = ir.Function(self._module, kind, f"{e.function.name}_{first}")
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        e.b.call(function, given)
        inner = Emitter(function, self.target)
        yield self._with_roots(inner, list(function.args))
        inner.b.ret_void()

    def _with_roots(self, e: Emitter, given: list[Value]) -> tuple[Emitter, Roots, list[Value]]:
        arena, weights, table, *others = given
        return e, Roots(e, arena, weights, table, len(self.placeholders)), others

    @property
    def _last_pointer(self) -> int:
        """The number of the pointer that only timed and stepped programs have."""
        return len(self.placeholders) + 2 * bool(self.hosted)

    def _timed_call(
        self, e: Emitter, roots: Roots, number: int, call: Call, share: tuple[Value, Value]
    ) -> None:
        if self.stepped:
            with e.when(
                e.b.icmp_unsigned("==", e.load(roots.pointer(self._last_pointer), I64), e.index(number))
            ):
                self._calls.emit(e, roots, call, share)
            return
        if not self.timed:
            self._calls.emit(e, roots, call, share)
            return
        before = self.target.cycles(e)
        self._calls.emit(e, roots, call, share)
        taken = e.b.sub(self.target.cycles(e), before)
        slot = e.offset(roots.pointer(self._last_pointer), 8 * number)
        e.store(e.b.add(e.load(slot, I64), taken), slot)
