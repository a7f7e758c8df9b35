"""Running one program by its reference and as compiled code, and comparing every buffer."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.codegen.cache import KernelCache
from qglow.codegen.compiler import compile_program, default_kernels
from qglow.codegen.jit import NativeFunction, load
from qglow.codegen.team import TEAM_BYTES, THREADS
from qglow.core.types import Array
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.liveness import Usage, overlap, unstored
from qglow.instructions.operation import Access
from qglow.instructions.passes.stacking import is_internal, stacks
from qglow.instructions.plan import plan_inside, plan_memory
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program
from qglow.instructions.verifier import verify_program
from qglow.kernels.emit.operand import to_logical, to_physical
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.selection.select import select_kernels
from qglow.runtime.hosting import Host, hosted_nodes
from qglow.targets import capabilities
from qglow.targets.registry import find_target, running_names
from qglow.targets.x86.isas import AVX512_VBMI, host_isas, isa_by_name
from tests.portable_target import PORTABLE

ALIGNMENT = 64
SLACK = 64
POISON = 0xA5
THREADS_APART, THREADS_SHARED = (3, 7), (2,)
"""Teams that every program is run by, with activations apart and on the shared memory plan."""

NATIVE: Sequence[VectorTarget] = host_isas() or [
    capabilities.machine(find_target(name)) for name in running_names()
]
"""The descriptions of what runs here, slowest first: of x86-64, on another processor its own."""
RUNNABLE: Sequence[VectorTarget] = host_isas(emulated=True) or NATIVE
"""These, and AMX by its emulation on x86-64."""
ALL_ISAS = [*(isa.name for isa in NATIVE), PORTABLE.name]
NATIVE_ISAS = [isa.name for isa in NATIVE if isa is not AVX512_VBMI]
"""Without the one that differs from another in tables only; tables are tested on all."""
PLAIN = NATIVE_ISAS[0]
"""What runs on every processor of the host's kind: generic on x86-64."""
HOST_ISAS = [*NATIVE_ISAS, PORTABLE.name]
"""What programs are run by here, the target without a processor of its own among them."""


def machine(name: str) -> VectorTarget:
    """The description of a target by its name, that of the tests among them."""
    if name == PORTABLE.name:
        return PORTABLE
    return next((isa for isa in NATIVE if isa.name == name), None) or isa_by_name(name)


@dataclass
class Run:
    """Outputs by name, state by name, and the last contents of every buffer that was written."""

    outputs: dict[str, Array]
    state: dict[str, Array]
    buffers: dict[str, Array]


def run_compiled(
    program: Program,
    isa_name: str,
    inputs: Mapping[str, Array],
    state: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Outputs of the program compiled for an ISA, memory planned and shared as in earnest."""
    prepared = prepare(program, isa_name)
    plan_memory(prepared)
    return execute(prepared, isa_name, inputs, state or {}).outputs


def prepare(program: Program, isa_name: str) -> Program:
    """A copy with kernels selected for an ISA, verified."""
    prepared = copy.deepcopy(program)
    select_kernels(prepared, machine(isa_name))
    verify_program(prepared, f"after kernel selection for {isa_name}")
    return prepared


def plan_apart(program: Program) -> None:
    """Give every activation memory that no other ever uses, so that all can be looked at."""
    plan_inside(program, plan_apart)
    offset = 0
    for buffer in program.activations():
        buffer.arena_offset = offset
        offset += -(-buffer.byte_size // ALIGNMENT) * ALIGNMENT
    program.arena_size = offset + SLACK


def execute(program: Program, isa_name: str, inputs: Mapping[str, Array], state: Mapping[str, Array]) -> Run:
    """Compile and call a program with kernels and a memory plan; guards around memory are checked."""
    return Built(program, isa_name).run(inputs, state)


class Built:
    """A program compiled so that whatever can be shared by threads is, however small.

    A kernel that another test of the session has compiled is not compiled again: a kernel's key has to
    tell all kernels apart that differ.
    """

    def __init__(self, program: Program, isa_name: str, kernels: KernelCache | None = None) -> None:
        self.program, isa = program, machine(isa_name)
        self.compiled = compile_program(program, isa, part_cycles=0, kernels=kernels or default_kernels(isa))
        self.function = load(self.compiled)
        self.host = Host(hosted_nodes(program))

    @property
    def is_shared(self) -> bool:
        """Whether there is anything that threads can share."""
        return self.compiled.team_entry is not None

    def run(self, inputs: Mapping[str, Array], state: Mapping[str, Array], parts: int = 1) -> Run:
        """Call it and check the guards around all memory. One thread does all the parts, in turn."""
        compiled = self.compiled
        bias = compiled.target.activation_bias
        arena = Guarded("the arena", compiled.arena_size)
        weights = Guarded("the constants", len(compiled.weights))
        weights.inside[:] = compiled.weights
        tables = {b.name: _placeholder(b, inputs, state, bias) for b in self.program.placeholders}
        end = self.host.addresses()
        addresses = [*(tables[name].address for name in compiled.placeholders), *end]
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        before = weights.inside.copy()
        places = arena.address, weights.address, ctypes.addressof(pointers)
        self.host.checked(end, lambda: self._call(places, parts))()
        assert np.array_equal(before, weights.inside), "constants were overwritten"
        for memory in (arena, weights, *tables.values()):
            memory.check()
        return _collect(self.program, arena.inside, {name: m.inside for name, m in tables.items()}, bias)

    def _call(self, places: tuple[int, int, int], parts: int) -> None:
        if parts == 1:
            self.function(*places)
        else:
            run_parts(self.function, places, parts)


def run_parts(function: NativeFunction, places: tuple[int, int, int], parts: int) -> None:
    """Call the entry for a team of so many threads, of which only the first one comes."""
    team = Guarded("the memory of the team", TEAM_BYTES)
    team.inside[:] = 0
    team.inside[THREADS : THREADS + 4].view(np.uint32)[0] = parts
    kinds = [ctypes.c_void_p] * 4 + [ctypes.c_int64]
    ctypes.CFUNCTYPE(None, *kinds)(function.team_address)(*places, team.address, 0)
    team.check()


class Guarded:
    """Memory at an aligned address, full of poison, with poisoned zones before and behind it.

    Code may read the zones (it reads whole vectors) and must not write to them.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self._room = np.full(SLACK + ALIGNMENT + size + SLACK, POISON, np.uint8)
        self._start = SLACK + -(self._room.ctypes.data + SLACK) % ALIGNMENT
        self.inside = self._room[self._start : self._start + size]
        self.address = self._room.ctypes.data + self._start

    def check(self) -> None:
        """Assert that nothing was written outside."""
        front, tail = self._room[: self._start], self._room[self._start + len(self.inside) :]
        assert np.all(front == POISON), f"memory before {self.name} was overwritten"
        assert np.all(tail == POISON), f"memory behind {self.name} was overwritten"


def _placeholder(
    buffer: Buffer, inputs: Mapping[str, Array], state: Mapping[str, Array], bias: int
) -> Guarded:
    room = Guarded(f"%{buffer.name}", buffer.type.byte_size)
    given = inputs.get(buffer.name, state.get(buffer.name))
    if given is not None:
        room.inside[:] = to_physical(given, buffer.type, bias).reshape(-1).view(np.uint8)
    return room


def _collect(program: Program, arena: Array, tables: dict[str, Array], bias: int) -> Run:
    def contents(buffer: Buffer) -> Array:
        root = buffer.root
        if root.kind is BufferKind.ACTIVATION:
            assert root.arena_offset is not None
            memory = arena[root.arena_offset : root.arena_offset + root.byte_size]
        else:
            memory = tables[root.name][: root.byte_size]
        elements = to_logical(memory, buffer.type, bias)
        layout = buffer.layout
        strides = tuple(s * elements.itemsize for s in layout.strides)
        window = np.ndarray(
            buffer.type.shape,
            elements.dtype,
            elements.view(np.uint8).data,
            layout.offset * elements.itemsize,
            strides,
        )
        return window.copy()

    written = {b for i in program.code for b in i.writes()} | set(program.outputs()) | set(program.state())
    written = {b for b in written if b.root not in unstored(program)}
    return Run(
        {b.name: contents(b) for b in program.outputs()},
        {b.name: contents(b) for b in program.state()},
        {b.name: contents(b) for b in written},
    )


def reference(program: Program, inputs: Mapping[str, Array], state: Mapping[str, Array] | None = None) -> Run:
    """The interpreter's results on a program with a memory plan."""
    interpreter = ArenaInterpreter(program)
    for name, value in (state or {}).items():
        interpreter.state[name][...] = value
    last: dict[str, tuple[Buffer, Array]] = {}

    def tap(instruction: Instruction, arrays: dict[str, Array]) -> None:
        for buffer in instruction.writes():
            for name, (other, _) in list(last.items()):
                if other is not buffer and overlap(other, buffer):
                    del last[name]
            last[buffer.name] = buffer, arrays[buffer.name]

    outputs = interpreter.run(inputs, tap)
    held = {name: array.copy() for name, array in interpreter.state.items()}
    return Run(outputs, held, {name: array for name, (_, array) in last.items()})


def assert_same_bits(
    program: Program,
    inputs: Mapping[str, Array],
    isas: list[str] | None = None,
    state: Mapping[str, Array] | None = None,
    tolerance: float = 0.0,
) -> None:
    """Every buffer that compiled code leaves equals the interpreter's, on every ISA of the host.

    int8 and integers must be equal; floats too (NaN equal to NaN, zeros of either sign), or
    within `tolerance` relative to the largest magnitude. Also runs on the shared memory plan, and
    in the parts that teams of threads share.
    """
    for isa_name in isas or HOST_ISAS:
        prepared = prepare(program, isa_name)
        plan_apart(prepared)
        expected = reference(prepared, inputs, state)
        for name in kept_in_registers(prepared):
            expected.buffers.pop(name, None)
        built = Built(prepared, isa_name)
        for parts in (1, *(THREADS_APART if built.is_shared else ())):
            actual = built.run(inputs, state or {}, parts)
            for kind in ("buffers", "outputs", "state"):
                for name, wanted in getattr(expected, kind).items():
                    what = f"%{name} on {isa_name} in {parts} parts"
                    compare(getattr(actual, kind)[name], wanted, what, tolerance)
        if not prepared.activations():
            continue
        plan_memory(prepared)
        built = Built(prepared, isa_name)
        for parts in (1, *(THREADS_SHARED if built.is_shared else ())):
            shared = built.run(inputs, state or {}, parts)
            for name, wanted in expected.outputs.items():
                what = f"%{name} on {isa_name} in {parts} parts, memory shared"
                compare(shared.outputs[name], wanted, what, tolerance)


def kept_in_registers(program: Program) -> set[str]:
    """Names of buffers whose last value reaches no memory: a stack or an epilogue alone needs it."""
    usage = Usage(program)
    kept: dict[str, bool] = {}
    for group in stacks(program):
        for number, instruction in enumerate(group):
            alone = len(group) == 1
            stays = not alone and (is_internal(usage, group, number) or is_in_epilogue(group, number))
            for operand, buffer in instruction.operands():
                if operand.access is not Access.IN:
                    kept[buffer.name] = stays
    return {name for name, stays in kept.items() if stays}


def is_in_epilogue(group: list[Instruction], number: int) -> bool:
    """Whether a result of a stack is what an epilogue goes on with."""
    return group[0].operation.has_epilogue and number + 1 < len(group)


def compare(actual: Array, wanted: Array, what: str, tolerance: float = 0.0) -> None:
    """Assert equality as `assert_same_bits` has it."""
    if tolerance and wanted.dtype.kind == "f":
        assert np.array_equal(np.isnan(actual), np.isnan(wanted)), what
        limit = tolerance * max(float(np.max(np.abs(wanted), initial=0.0)), 1e-30)
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=limit, err_msg=what)
        return
    same = (actual == wanted) | ((actual != actual) & (wanted != wanted))
    if not np.all(same):
        where = tuple(int(i[0]) for i in np.nonzero(~same))
        count = int(np.sum(~same))
        raise AssertionError(
            f"{what}: {count} of {wanted.size} elements differ, first at {where}: "
            f"{actual[where]!r}, not {wanted[where]!r}"
        )
