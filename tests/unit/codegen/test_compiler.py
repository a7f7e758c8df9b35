"""Compilation: what shares code, what is cached, what leaves the caller's settings alone."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import platform
from pathlib import Path

import numpy as np
import pytest

from qglow.codegen.cache import ObjectCache, cache_key
from qglow.codegen.compiler import compile_program, emit_assembly, emit_llvm_text
from qglow.codegen.jit import load
from qglow.codegen.module import ModuleBuilder
from qglow.codegen.target import assembly, object_code
from qglow.codegen.weights import WeightBlob
from qglow.core.errors import CodegenError, InternalError, UsageError
from qglow.core.types import ElementType, Quantization, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.elementwise import ElementAdd
from qglow.instructions.ops.pool import MaxPool
from qglow.instructions.ops.quantize import Lookup, Quantize
from qglow.instructions.program import Program
from qglow.kernels.selection.select import select_kernels
from qglow.targets import capabilities
from qglow.targets.registry import find_target, running_names, select_target
from qglow.targets.x86.isas import AMX, GENERIC, ISAS, host_isas, isa_by_name
from tests.runtimes import (
    HOST_ISAS,
    NATIVE_ISAS,
    Guarded,
    assert_same_bits,
    execute,
    machine,
    plan_apart,
    prepare,
)

IS_X86 = platform.machine() == "x86_64"
DENORMALS_TO_ZERO, ROUND_DOWN = (0x8040, 0x2000) if IS_X86 else (1 << 24, 2 << 22)
"""Bits of mxcsr, and of FPCR on 64-bit Arm."""


def doubled(times: int, size: int = 20) -> Program:
    """src + src, `times` times in a row."""
    builder = ProgramBuilder("doubled")
    kind = float_type(size)
    value = builder.placeholder("src", kind)
    for number in range(times - 1):
        result = builder.activation(f"value{number}", kind)
        builder.emit("add", ElementAdd(), result, value, value)
        value = result
    builder.emit("add", ElementAdd(), builder.placeholder("dest", kind), value, value)
    return builder.finish()


def ready(program: Program, isa_name: str) -> Program:
    prepared = prepare(program, isa_name)
    plan_apart(prepared)
    return prepared


def test_equal_instructions_share_one_function() -> None:
    text = emit_llvm_text(ready(doubled(9), "generic"), GENERIC)
    assert text.count("define internal") == 1


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_assembly_for_every_isa(isa: object) -> None:
    name = isa.name  # type: ignore[attr-defined]
    program = doubled(2)
    select_kernels(program, isa_by_name(name))
    plan_apart(program)
    text = emit_assembly(program, isa_by_name(name))
    assert "qglow_run:" in text
    assert ("%zmm" in text) == name.startswith(("avx512", "amx"))


def test_long_entries_are_several_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise they would take longer than in proportion; any part may be shared by threads."""
    monkeypatch.setattr("qglow.codegen.module.SECTION", 3)
    program = doubled(8, 9000)
    assert_same_bits(program, {"src": np.linspace(-1, 1, 9000, dtype=np.float32)}, HOST_ISAS[:2])
    text = ModuleBuilder(ready(program, "generic"), GENERIC, part_cycles=0).text()
    names = ("qglow_run", "qglow_share")
    assert all(f'define internal void @"{name}_{first}"' in text for name in names for first in (0, 3, 6))
    assert "qglow_run_9" not in text
    assert 'qglow_run_0"' not in emit_llvm_text(ready(doubled(3), "generic"), GENERIC)


def test_same_program_gives_same_bytes() -> None:
    first, second = (compile_program(ready(doubled(3), "generic"), GENERIC) for _ in range(2))
    assert first.objects == second.objects
    assert first.weights.tobytes() == second.weights.tobytes()


def test_selection_and_plan_are_needed() -> None:
    with pytest.raises(InternalError, match="no kernel"):
        compile_program(doubled(2), GENERIC)
    with pytest.raises(InternalError, match="not planned"):
        compile_program(prepare(doubled(2), "generic"), GENERIC)


def test_cache_returns_what_was_stored_and_rejects_damage(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    program = ready(doubled(2), "generic")
    first = compile_program(program, GENERIC, cache)
    second = compile_program(program, GENERIC, cache)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert first.objects == second.objects
    (stored,) = tmp_path.rglob("*.o")
    data = bytearray(stored.read_bytes())
    data[-1] ^= 1
    stored.write_bytes(bytes(data))
    third = compile_program(program, GENERIC, cache)
    assert not third.from_cache and third.objects == first.objects
    assert compile_program(program, GENERIC, cache).from_cache


def test_what_is_in_the_cache_is_not_emitted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ObjectCache(tmp_path)
    first = compile_program(ready(doubled(2, 9000), "generic"), GENERIC, cache, part_cycles=0)
    monkeypatch.setattr(ModuleBuilder, "batches", lambda *_: pytest.fail("emitted again"))
    second = compile_program(ready(doubled(2, 9000), "generic"), GENERIC, cache, part_cycles=0)
    assert second == dataclasses.replace(first, weights=second.weights, from_cache=True, kernels_compiled=0)
    assert second.team_entry is not None and second.weights.tobytes() == first.weights.tobytes()


def test_cached_code_is_of_the_very_program_and_settings(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    program = ready(doubled(2), "generic")
    compile_program(program, GENERIC, cache)
    assert not compile_program(program, GENERIC, cache, timed=True).from_cache
    assert not compile_program(program, GENERIC, cache, part_cycles=0).from_cache
    assert not compile_program(ready(doubled(3), "generic"), GENERIC, cache).from_cache
    assert not compile_program(ready(doubled(2), "avx2"), isa_by_name("avx2"), cache).from_cache


@pytest.mark.parametrize("second", [Quantization.per_tensor(0.5, 3), Quantization.per_tensor(0.25, -7)])
def test_tables_share_one_function_whatever_their_numbers_mean(second: Quantization) -> None:
    builder = ProgramBuilder("tables")
    kinds = [
        TensorType(ElementType.INT8, (40,), q)
        for q in (Quantization.per_tensor(0.25, 3), second, Quantization.per_tensor(1.0, 0))
    ]
    values = [builder.placeholder("src", kinds[0])]
    values += [builder.activation("middle", kinds[1]), builder.placeholder("dest", kinds[2])]
    for number, (source, dest) in enumerate(itertools.pairwise(values)):
        entries = builder.constant(f"table{number}", np.arange(256).astype(np.int8))
        builder.emit("lookup", Lookup(), dest, source, entries)
    text = emit_llvm_text(ready(builder.finish(), "avx2"), isa_by_name("avx2"))
    assert text.count("define internal") == 1


def test_large_windows_are_loops() -> None:
    def lines(size: int) -> int:
        kind = TensorType(ElementType.INT8, (1, 13, 13, 64), Quantization.per_tensor(0.5, 3))
        builder = ProgramBuilder("pool")
        operation = MaxPool(kernel=(size, size), pads=(size // 2,) * 4)
        builder.emit("pool", operation, builder.placeholder("dest", kind), builder.placeholder("src", kind))
        return emit_llvm_text(ready(builder.finish(), "avx2"), isa_by_name("avx2")).count("\n")

    assert lines(13) < 10 * lines(5)


def test_cache_keys_tell_text_and_target_apart() -> None:
    keys = {cache_key(text, isa) for text in ("a", "b") for isa in ISAS}
    assert len(keys) == 2 * len(ISAS)


def test_unwritable_cache_does_no_harm(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    compiled = compile_program(ready(doubled(2), "generic"), GENERIC, ObjectCache(blocked))
    assert compiled.objects and not compiled.from_cache


def test_bad_llvm_text_is_an_error_of_ours() -> None:
    with pytest.raises(CodegenError, match="LLVM refuses"):
        object_code("define void @f() { ret i32 0 }", GENERIC)
    with pytest.raises(CodegenError):
        assembly("nonsense", GENERIC)


@pytest.mark.skipif(AMX in host_isas(), reason="the host has AMX")
def test_host_that_lacks_the_isa_refuses_to_load() -> None:
    program = doubled(2)
    select_kernels(program, AMX)
    plan_apart(program)
    with pytest.raises(UsageError, match="cannot run code for 'amx'"):
        load(compile_program(program, AMX))


def test_select_isa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QGLOW_ISA", raising=False)
    names = running_names()
    assert select_target().machine is capabilities.machine(find_target(names[-1]))
    slowest = capabilities.machine(find_target(names[0]))
    assert select_target(names[0]).machine is slowest
    monkeypatch.setenv("QGLOW_ISA", names[0])
    assert select_target().machine is slowest
    with pytest.raises(UsageError, match="no target is called 'sse9'; there are generic, avx2"):
        select_target("sse9")
    if AMX not in host_isas():
        with pytest.raises(UsageError, match=f"this host cannot run ISA 'amx'; it has {names[0]}"):
            select_target("amx")


@pytest.mark.parametrize("isa_name", HOST_ISAS)
def test_callers_float_environment_is_neither_used_nor_changed(isa_name: str) -> None:
    """With denormals off and rounding down around the call, results and settings stay."""
    kind = TensorType(ElementType.INT8, (16,), Quantization.per_tensor(2.0, 0))
    builder = ProgramBuilder("environment")
    src = builder.placeholder("src", float_type(16))
    other = builder.placeholder("other", float_type(16))
    total = builder.placeholder("total", float_type(16))
    builder.emit("add", ElementAdd(), total, src, other)
    builder.emit("quantize", Quantize(), builder.placeholder("bytes", kind), src)
    program = ready(builder.finish(), isa_name)
    values = np.linspace(-20, 20, 16).astype(np.float32)
    values[:4] = [1e-40, -1e-40, 1.0, 3.0]
    inputs = {"src": values, "other": values * np.float32(1e-8)}
    expected = execute(program, isa_name, inputs, {}).outputs
    with FloatControlChanged(DENORMALS_TO_ZERO | ROUND_DOWN) as environment:
        actual = execute(program, isa_name, inputs, {}).outputs
        assert environment.current() & (DENORMALS_TO_ZERO | ROUND_DOWN) == DENORMALS_TO_ZERO | ROUND_DOWN
    for name, array in expected.items():
        assert array.tobytes() == actual[name].tobytes(), name
    assert expected["total"][0] != 0.0


class FloatControlChanged:
    """Sets bits of the control register of floats while inside, through glibc's fenv_t."""

    CONTROL = 28 if IS_X86 else 0  # offset of the register in fenv_t

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.math = ctypes.CDLL("libm.so.6")

    def _get(self) -> ctypes.Array[ctypes.c_char]:
        environment = ctypes.create_string_buffer(32)
        assert self.math.fegetenv(environment) == 0
        return environment

    def current(self) -> int:
        return int.from_bytes(self._get()[self.CONTROL : self.CONTROL + 4], "little")

    def __enter__(self) -> FloatControlChanged:
        self.saved = self._get()
        changed = ctypes.create_string_buffer(self.saved.raw, 32)
        value = self.current() | self.bits
        changed[self.CONTROL : self.CONTROL + 4] = value.to_bytes(4, "little")
        assert self.math.fesetenv(changed) == 0
        return self

    def __exit__(self, *_: object) -> None:
        assert self.math.fesetenv(self.saved) == 0


def test_timed_code_counts_cycles_of_every_instruction() -> None:
    isa = NATIVE_ISAS[0]
    # Counters of some processors advance a few dozen times in a microsecond.
    program = ready(doubled(3, 20_000), isa)
    compiled = compile_program(program, machine(isa), timed=True)
    src, dest = np.ones(20_000, np.float32), np.zeros(20_000, np.float32)
    cycles = np.zeros(len(program.code), np.uint64)
    arena, weights = Guarded("the arena", compiled.arena_size), Guarded("constants", len(compiled.weights))
    table = (ctypes.c_void_p * 3)(src.ctypes.data, dest.ctypes.data, cycles.ctypes.data)
    load(compiled)(arena.address, weights.address, ctypes.addressof(table))
    assert np.all(dest == 8.0)
    touched = [i.operation.touches_memory for i in program.code]
    assert np.array_equal(cycles > 0, touched)


def test_timed_code_for_arm_reads_a_counter_that_programs_may_read() -> None:
    target = capabilities.machine(find_target("aarch64"))
    program = doubled(3)
    select_kernels(program, target)
    plan_apart(program)
    text = assembly(ModuleBuilder(program, target, timed=True).text(), target)
    assert "cntvct_el0" in text.lower() and "pmccntr" not in text.lower()


def test_equal_constants_are_stored_once() -> None:
    blob = WeightBlob()
    first = blob.add(np.arange(10, dtype=np.int8))
    other = blob.add(np.arange(11, dtype=np.int8))
    assert blob.add(np.arange(10, dtype=np.int8)) == first
    assert other % 64 == 0 and len(blob.finish()) == 2 * 64 + 64


def test_module_names_placeholders_in_order() -> None:
    assert compile_program(ready(doubled(2), "generic"), GENERIC).placeholders == ("src", "dest")
