"""A global average pool behind a product adds up results that are never stored, with the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qglow.codegen.compiler import emit_llvm_text
from qglow.core.errors import VerificationError
from qglow.core.types import Shape
from qglow.display.terminal import to_text
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.liveness import unstored
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.ops.memory import Copy
from qglow.instructions.ops.pool import AveragePool
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Instruction, Program
from qglow.instructions.text import parse_program, print_program
from qglow.instructions.verifier import verify_program
from qglow.kernels.selection.epilogue_choice import (
    APART,
    EPILOGUE,
    MEAN_APART,
    epilogue_groups,
    usual_way,
    ways,
)
from qglow.kernels.selection.select import select_kernels
from qglow.report.kernels import kernel_document
from qglow.targets.x86.isas import AVX512_VBMI, AVX512_VNNI, isa_by_name
from tests.fuzzing import examples
from tests.runtimes import assert_same_bits, prepare
from tests.unit.kernels.selection.test_epilogue import (
    ISAS,
    OPERATIONS,
    WIDEST,
    Case,
    always_fused,
    build,
    check,
    constants,
    copied,
    fused,
    int8,
)

CASES = {
    "head": Case((1, 7, 7, 40), 130, follow=(), pool=True),
    "batch": Case((3, 5, 7, 32), 40, 3, follow=(), pool=True),
    "images are copied": Case((3, 5, 7, 16), 20, 3, follow=(), pool=True, has_border=False),
    "residual": Case((2, 9, 7, 32), 32, 3, follow=("block",), pool=True),
    "all in a row": Case((2, 5, 6, 8), 12, 3, follow=("table", "sub", "mul"), pool=True),
    "groups": Case((2, 6, 6, 24), 36, 3, 2, 2, follow=("table", "add"), pool=True),
    "depthwise": Case((3, 5, 6, 72), 72, 3, 1, 72, follow=("add",), pool=True),
    "depthwise, images are copied": Case((2, 5, 6, 20), 20, 3, 1, 20, (), pool=True, has_border=False),
    "depthwise, pixels are joined": Case((2, 3, 32, 2), 2, 3, 1, 2, (), pool=True),
    "more than words hold": Case((1, 17, 19, 8), 33, follow=(), pool=True),
    "long rows": Case((2, 2, 33, 8), 17, 3, follow=(), pool=True),
    "one position": Case((3, 1, 1, 8), 5, follow=(), pool=True),
}


@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_one_after_the_other(name: str) -> None:
    check(CASES[name], ISAS if name == "head" else WIDEST)


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.too_slow])
@given(
    case=st.builds(
        Case,
        shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 40), st.integers(1, 20)),
        filters=st.integers(1, 130),
        kernel=st.sampled_from((1, 3)),
        follow=st.lists(st.sampled_from(sorted({*OPERATIONS} - {"block"})), max_size=2),
        zero_points=st.tuples(st.sampled_from((-128, 0, 127)), st.sampled_from((-128, 1, 127))),
        pool=st.just(True),
        has_border=st.booleans(),
    ),
    isa=st.sampled_from(ISAS),
)
def test_bits_over_odd_shapes(case: Case, isa: str) -> None:
    check(case, [isa])


def product_program(rows: int, images: int) -> Program:
    """A matrix product whose rows are positions of images; their mean is that of a view, as of ReduceMean."""
    rng = np.random.default_rng(0)
    builder = ProgramBuilder("product")
    value = builder.activation("value", int8((rows, 50), 0.06, 3))
    operands = [
        builder.constant("filter", rng.integers(-127, 128, (30, 50)).astype(np.int8)),
        builder.constant("bias", rng.integers(-900, 900, 50).astype(np.int32)),
        builder.constant("multiplier", np.full(50, 0.002, np.float32)),
    ]
    src = builder.placeholder("src", int8((rows, 30), 0.05, 7))
    builder.emit("product", FullyConnected(), value, src, *operands)
    taps = rows // images
    view = builder.view("image", value, value.type.with_shape((images, taps, 1, 50)))
    dest = builder.placeholder("dest", int8((images, 1, 1, 50), 0.02, -7))
    builder.emit("mean", AveragePool(kernel=(taps, 1)), dest, view)
    return builder.finish()


@pytest.mark.parametrize(("rows", "images"), [(9, 1), (21, 3)])
def test_means_over_rows_of_a_matrix_product(rows: int, images: int) -> None:
    program = product_program(rows, images)
    data = {"src": np.random.default_rng(1).integers(-128, 128, (rows, 30)).astype(np.int8)}
    with always_fused():
        assert all(fused(prepare(program, isa)) == [1] for isa in WIDEST)
        assert_same_bits(program, data, WIDEST)


def test_heads_of_other_scales_are_other_functions() -> None:
    rng = np.random.default_rng(0)
    builder = ProgramBuilder("heads")
    src = copied(builder, "src", int8((1, 4, 4, 8), 0.05, 3))
    for name, scale, zero_point in (("a", 0.02, 4), ("b", 0.06, -30)):
        value = builder.activation(f"value{name}", int8((1, 4, 4, 16), 0.06, 3))
        builder.emit(f"conv{name}", Convolution(), value, src, *constants(builder, name, (16, 1, 1, 8), rng))
        dest = builder.placeholder(f"dest{name}", int8((1, 1, 1, 16), scale, zero_point))
        builder.emit(f"pool{name}", AveragePool((4, 4)), dest, value)
    program = builder.finish()
    with always_fused():
        assert fused(prepare(program, ISAS[-2])) == [1, 1]
        assert_same_bits(program, {"src": rng.integers(-128, 128, (1, 4, 4, 8)).astype(np.int8)}, ISAS[-2:-1])


LISTING = """
fillpadding border None
rescale elementwise{lanes=32} None
convolution listedconvolution{pixels=4, vectors=2, by_rows=true} 0
elementadd epilogue 0
averagepool poolepilogue 0
"""


def test_a_fused_program_reads_back_has_one_function_and_no_memory_for_results() -> None:
    with always_fused():
        program = prepare(build(CASES["residual"]), "avx2")
    text = print_program(program)
    assert print_program(parse_program(text)) == text
    assert [f"{i.operation.opcode} {i.kernel} {i.stack}" for i in program.code if i.kernel] == LISTING.split(
        "\n"
    )[1:-1]
    used = plan_memory(program).used
    verify_program(program, "planned")
    [results] = unstored(program)
    assert results.arena_offset is None and results.byte_size == 2 * 9 * 7 * 32
    apart = prepare(build(CASES["residual"]), "avx2")
    assert plan_memory(apart).used >= used + results.byte_size
    assert "convolution_elementadd_averagepool" in emit_llvm_text(program, isa_by_name("avx2"))
    rows = to_text(kernel_document(program, isa_by_name("avx2")), 200)
    assert rows.count("epilogue of %conv") == 2


def test_nothing_goes_on_behind_a_pool() -> None:
    with always_fused():
        program = prepare(build(CASES["head"]), "avx2")
    pool = next(i for i in program.code if isinstance(i.operation, AveragePool))
    again = Instruction("again", pool.operation, pool.buffers, pool.kernel, stack=pool.stack)
    program.code.insert(program.code.index(pool) + 1, again)
    with pytest.raises(VerificationError, match="stack 0 goes on behind what ends it"):
        verify_program(program, "test")


def behind(pool: AveragePool, dest: Shape, is_read: bool = False, group: int = 1) -> Program:
    """A convolution, a pool behind it, and perhaps another reader."""
    builder = ProgramBuilder("behind")
    kind = int8((1, 6, 6, 16), 0.05, 3)
    src, value = copied(builder, "src", kind), builder.activation("value", kind)
    filters = constants(builder, "", (16, 1, 1, 16 // group), np.random.default_rng(0))
    builder.emit("conv", Convolution(group=group), value, src, *filters)
    builder.emit("pool", pool, builder.placeholder("mean", int8(dest, 0.05, 3)), value)
    if is_read:
        builder.emit("out", Copy(), builder.placeholder("dest", kind), value)
    return builder.finish()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (behind(AveragePool((6, 6)), (1, 1, 1, 16)), [1]),
        (behind(AveragePool((6, 6)), (1, 1, 1, 16), is_read=True), []),
        (behind(AveragePool((2, 2), (2, 2)), (1, 3, 3, 16)), []),
        (behind(AveragePool((7, 7), (2, 2), (1, 1, 0, 0)), (1, 1, 1, 16)), []),
        (behind(AveragePool((6, 5)), (1, 1, 2, 16)), []),
    ],
)
def test_only_a_global_pool_is_joined_that_alone_reads_results(
    program: Program, expected: Sequence[int]
) -> None:
    with always_fused():
        assert fused(prepare(program, "avx2")) == expected


def test_by_default_a_pool_has_its_own_loop_and_tables_before_it_are_where_they_were() -> None:
    large = Case((1, 400, 400, 8), 64, follow=("table",), pool=True)
    found = []
    for case, isa in ((CASES["head"], AVX512_VBMI), (large, AVX512_VBMI), (large, AVX512_VNNI)):
        program = build(case)
        select_kernels(program, isa, epilogues=False)
        [group] = epilogue_groups(program, isa)
        found.append((ways(group, isa), usual_way(group, isa)))
    three = (EPILOGUE, MEAN_APART, APART)
    assert found == [((EPILOGUE, APART), APART), (three, MEAN_APART), (three, APART)]
    select_kernels(program := build(large), AVX512_VBMI)
    assert [i.kernel for i in program.code if i.stack is not None][1:] == ["epilogue"]
