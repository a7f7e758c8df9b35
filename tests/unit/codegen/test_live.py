"""Compiled loops leave out elements that do not matter, and give the bits of all others."""

from __future__ import annotations

import re

import numpy as np
import pytest

from qglow.codegen.compiler import emit_llvm_text
from qglow.core.passes import PassLog
from qglow.core.types import Array, ElementType, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.linear import FullyConnected, MatMul
from qglow.instructions.ops.softmax import Softmax
from qglow.instructions.passes.stacking import StackDataParallel
from qglow.instructions.program import Buffer, Live, Program
from qglow.kernels.emit.operand import to_logical, to_physical
from qglow.targets.x86.isas import AMX_EMULATED, AVX512_VNNI
from qglow.toolchain.compilation import compile_lowered
from qglow.toolchain.options import CompileOptions
from tests.runtimes import NATIVE_ISAS, RUNNABLE, plan_apart, prepare
from tests.unit.codegen.live_cases import (
    CASES,
    ROWS,
    Limited,
    Made,
    Pairs,
    drawn,
    int8_pair,
    scores,
    softmax,
    sums,
)

WIDEST = [NATIVE_ISAS[-1], *(isa.name for isa in RUNNABLE if isa is AMX_EMULATED)]
"""The last target of this processor, and the emulation of AMX where it runs."""


def program(case: Made, limited: bool) -> tuple[Program, Buffer, Pairs]:
    builder = ProgramBuilder("live")
    count = builder.placeholder("count", TensorType(ElementType.INT64, (1,)))
    dest, pairs = case(builder)
    made = builder.finish()
    for instruction in made.code if limited else ():
        if instruction.operation.touches_memory:
            instruction.live = tuple(Live(count, *pair) for pair in pairs)
    return made, dest, pairs


def inputs(made: Program, count: int) -> dict[str, Array]:
    found: dict[str, Array] = {"count": np.array([count], np.int64)}
    for buffer in made.inputs():
        if buffer.name != "count":
            whole = np.random.default_rng(len(buffer.name)).integers(-128, 128, buffer.type.shape)
            found[buffer.name] = whole.astype(buffer.type.element.dtype) / (32 if buffer.type.is_float else 1)
            found[buffer.name] = found[buffer.name].astype(buffer.type.element.dtype)
    return found


def run(made: Program, given: dict[str, Array], dest: Buffer, isa: str, threads: int = 1) -> Array:
    """Results in memory that has the number 77 where nothing is written."""
    executable = compile_lowered(made, CompileOptions(isa=isa, threads=threads))
    given = {name: array for name, array in given.items() if name in executable.inputs}
    result = np.full(dest.type.shape, 77, dest.type.element.dtype)
    bias = executable.activation_bias
    stored = {name: to_physical(a, made.buffer(name).type, bias) for name, a in given.items()}
    written = to_physical(result, dest.type, bias).copy()
    others = {b.name: np.zeros(b.type.shape, np.float32) for b in made.outputs() if b.name != "dest"}
    executable.bind(stored, {"dest": written, **others})()
    return to_logical(written, dest.type, bias)


def live_mask(shape: tuple[int, ...], pairs: Pairs, count: int) -> Array:
    places = np.arange(np.prod(shape))
    live = np.ones(len(places), bool)
    for extent, inner in pairs:
        live &= places // inner % extent < count
    return live.reshape(shape)


@pytest.mark.parametrize("isa", [*NATIVE_ISAS, *WIDEST[1:]])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_live_elements_have_the_bits_of_a_whole_result(case: Made, isa: str) -> None:
    whole, dest, pairs = program(case, limited=False)
    limited, same, _ = program(case, limited=True)
    expected = run(whole, inputs(whole, ROWS), dest, isa)
    for count in (ROWS, ROWS - 1, 33, 1, 0):
        found = run(limited, inputs(limited, count), same, isa)
        live = live_mask(dest.type.shape, pairs, count)
        assert found[live].tobytes() == expected[live].tobytes(), count


@pytest.mark.parametrize("isa", WIDEST)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_most_of_the_others_are_left_out(case: Made, isa: str) -> None:
    limited, dest, pairs = program(case, limited=True)
    found = run(limited, inputs(limited, 9), dest, isa)
    dead = ~live_mask(dest.type.shape, pairs, 9)
    assert (found[dead] == 77).mean() > 0.5


@pytest.mark.parametrize("count", [-5, ROWS + 1, 2**62])
def test_no_number_leads_out_of_the_result(count: int) -> None:
    whole, dest, _ = program(softmax, limited=False)
    limited, same, _ = program(softmax, limited=True)
    found = run(limited, inputs(limited, count), same, NATIVE_ISAS[-1])
    if count > 0:
        assert found.tobytes() == run(whole, inputs(whole, ROWS), dest, NATIVE_ISAS[-1]).tobytes()
    else:
        assert (found == 77).all()


def wide_layer(builder: ProgramBuilder) -> Limited:
    """More weights than the first-level cache has room for: those of the next block are fetched early."""
    src, dest = (builder.placeholder(n, float_type(256, k)) for n, k in (("src", 512), ("dest", 512)))
    filters = builder.constant("filter", drawn(512, 512))
    builder.emit("layer", FullyConnected(), dest, src, filters, builder.constant("bias", drawn(512)))
    return dest, ((256, 512),)


def test_few_rows_fetch_all_weights_of_the_next_block_early() -> None:
    """The two tiles of a call of 16 rows do what the 32 of 256 rows share: in vectors of 512 bits."""
    lines, isa = [], AVX512_VNNI
    for limited in (False, True):
        prepared = prepare(program(wide_layer, limited)[0], isa.name)
        plan_apart(prepared)
        text = emit_llvm_text(prepared, isa)
        lines.append(text.count("call void @llvm.prefetch") + text.count('call void @"llvm.prefetch'))
    assert lines[1] >= 2 * lines[0] > 0


def test_all_other_rows_fetch_no_weights_again() -> None:
    """Behind the first two tiles, what is fetched is what is read anyway: 0 bytes ahead."""
    isa = AVX512_VNNI
    prepared = prepare(program(wide_layer, True)[0], isa.name)
    plan_apart(prepared)
    chosen = re.findall(r"(%\S+) = icmp slt i64 \S+, 2\n\s*\S+ = select  i1 (\S+), i64 \S+, i64 0",
                        emit_llvm_text(prepared, isa))  # fmt: skip
    assert chosen and all(flag == used for flag, used in chosen)


def test_threads_share_what_is_live() -> None:
    whole, dest, pairs = program(scores, limited=False)
    limited, same, _ = program(scores, limited=True)
    found = run(limited, inputs(limited, 40), same, NATIVE_ISAS[-1], threads=2)
    live = live_mask(dest.type.shape, pairs, 40)
    expected = run(whole, inputs(whole, ROWS), dest, NATIVE_ISAS[-1])
    assert found[live].tobytes() == expected[live].tobytes()


@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_sums_end_where_their_terms_do(isa: str) -> None:
    """Terms that do not matter are not read: here they are NaN."""
    builder = ProgramBuilder("sums")
    count = builder.placeholder("count", TensorType(ElementType.INT64, (1,)))
    lhs, rhs = (
        builder.placeholder("lhs", float_type(2, 8, ROWS)),
        builder.placeholder("rhs", float_type(2, ROWS, 24)),
    )
    dest = builder.placeholder("dest", float_type(2, 8, 24))
    builder.emit("product", MatMul(), dest, lhs, rhs).summed = count
    a, b = drawn(2, 8, ROWS), drawn(2, ROWS, 24)
    a[:, :, 50:] = np.nan
    found = run(builder.finish(), {"count": np.array([50]), "lhs": a, "rhs": b}, dest, isa)
    zeros = replace_rest(a, 0.0), replace_rest(b.swapaxes(1, 2), 0.0).swapaxes(1, 2)
    plain, same, _ = program_of(zeros[0].shape, zeros[1].shape)
    expected = run(plain, {"lhs": zeros[0], "rhs": np.ascontiguousarray(zeros[1])}, same, isa)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("isa", NATIVE_ISAS)
@pytest.mark.parametrize("depth", [ROWS, ROWS + 3])
def test_sums_of_integers_end_where_their_terms_do(depth: int, isa: str) -> None:
    """Terms that do not matter have a factor of zero, here -128, and are left out but for a few."""
    random = np.random.default_rng(depth)
    b = random.integers(-128, 128, (2, depth, 24)).astype(np.int8)

    def found(places: int, a: Array, limited: bool) -> bytes:
        builder = ProgramBuilder("sums")
        count = builder.placeholder("count", TensorType(ElementType.INT64, (1,)))
        dest = builder.placeholder("dest", float_type(2, 8, 24))
        product = builder.emit("product", MatMul(), dest, *int8_pair(builder, a.shape, b.shape))
        product.summed = count if limited else None
        given = {"count": np.array([places]), "lhs": a, "rhs": b}
        return run(builder.finish(), given, dest, isa).tobytes()

    for places in (0, 1, 50, depth):
        a = random.integers(-128, 128, (2, 8, depth)).astype(np.int8)
        a[:, :, places:] = -128
        expected = found(places, a, limited=False)
        assert found(places, a, limited=True) == expected, places
        if places == 1:  # of terms that do not count, those of the same step alone are read
            a[:, :, 4 : depth - depth % 4] = 77
            assert found(places, a, limited=True) == expected != found(places, a, limited=False)


@pytest.mark.parametrize("isa", NATIVE_ISAS)
@pytest.mark.parametrize("length", [ROWS, ROWS + 5])
def test_rows_of_softmax_end_where_their_live_elements_do(length: int, isa: str) -> None:
    """What follows is -inf, as masks leave it, and adds nothing."""

    def found(places: int, array: Array, limited: bool) -> Array:
        builder = ProgramBuilder("rows")
        count = builder.placeholder("count", TensorType(ElementType.INT64, (1,)))
        src, dest = (builder.placeholder(n, float_type(3, length)) for n in ("src", "dest"))
        softmax = builder.emit("softmax", Softmax(1), dest, src)
        softmax.live = (Live(count, length, 1),) if limited else ()
        return run(builder.finish(), {"count": np.array([places]), "src": array}, dest, isa)

    for places in (1, 16, 17, 50, length):
        array = drawn(3, length)
        array[:, places:] = -np.inf
        whole, part = found(places, array, limited=False), found(places, array, limited=True)
        assert part[:, :places].tobytes() == whole[:, :places].tobytes(), places
        if places < 32:
            assert (part[:, 32 : length // 16 * 16] == 77).all()


def replace_rest(array: Array, number: float) -> Array:
    changed = array.copy()
    changed[..., 50:] = number
    return changed


def program_of(lhs: tuple[int, ...], rhs: tuple[int, ...]) -> tuple[Program, Buffer, Buffer]:
    builder = ProgramBuilder("plain")
    left, right = builder.placeholder("lhs", float_type(*lhs)), builder.placeholder("rhs", float_type(*rhs))
    dest = builder.placeholder("dest", float_type(*lhs[:-1], rhs[-1]))
    builder.emit("product", MatMul(), dest, left, right)
    return builder.finish(), dest, left


def test_a_stack_runs_whole_where_one_result_is_needed_whole() -> None:
    limited, dest, _ = program(sums, limited=True)
    StackDataParallel().run(limited, PassLog())
    *_, last = (instruction for instruction in limited.code if instruction.stack is not None)
    last.live = ()
    whole, same, _ = program(sums, limited=False)
    expected = run(whole, inputs(whole, ROWS), same, NATIVE_ISAS[-1])
    found = run(limited, inputs(limited, 3), dest, NATIVE_ISAS[-1])
    assert found.tobytes() == expected.tobytes()
