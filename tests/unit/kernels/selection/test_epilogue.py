"""What follows a product is done before it stores, with the same bits, and only where nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qglow.codegen.compiler import emit_llvm_text
from qglow.core.errors import VerificationError
from qglow.core.types import ElementType, Quantization, Shape, TensorType
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.operation import Operation
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.elementwise import ElementAdd, ElementMul, ElementSub
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.ops.memory import Copy, Splat
from qglow.instructions.ops.movement import Insert
from qglow.instructions.ops.pool import AveragePool
from qglow.instructions.ops.quantize import Lookup, Rescale
from qglow.instructions.passes import default_pipeline
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Buffer, Program
from qglow.instructions.text import parse_program, print_program
from qglow.instructions.verifier import verify_program
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.selection import epilogue_choice
from qglow.kernels.selection.epilogue_choice import APART, EPILOGUE, epilogue_groups, fused_groups, usual_way
from qglow.kernels.selection.select import select_kernels
from qglow.targets.x86.isas import AVX512_VBMI, AVX512_VNNI, isa_by_name
from tests.fuzzing import examples
from tests.runtimes import RUNNABLE, assert_same_bits, prepare

ISAS = [isa.name for isa in RUNNABLE]
WIDEST = ISAS[-2:]
"""Of registers of each size, the property test and a few cases see all."""


@contextmanager
def always_fused() -> Iterator[None]:
    """Every group that can be fused is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epilogue_choice, "usual_way", lambda group, isa: EPILOGUE)
        yield


@dataclass(frozen=True)
class Case:
    """A product of an image, `follow` behind it, and a reader.

    Followers: "add" has the results first, "radd" second; "relu" is a sum
    of positive results, "block" one with the image. The last result goes where a window is read, into
    a slice of more channels, or into a global average pool. The image may have no border of its own.
    """

    shape: Shape = (1, 6, 7, 8)
    filters: int = 16
    kernel: int = 1
    stride: int = 1
    group: int = 1
    follow: Sequence[str] = ("add",)
    into_window: bool = False
    into_slice: bool = False
    zero_points: Shape = (3, -5)
    pool: bool = False
    has_border: bool = True


def int8(shape: Shape, scale: float, zero_point: int) -> TensorType:
    return TensorType(ElementType.INT8, shape, Quantization.per_tensor(scale, zero_point))


def made(shape: Shape, number: int) -> TensorType:
    """The type of a follower's result."""
    return int8(shape, 0.07, -9 + number)


OPERATIONS: dict[str, Operation] = {
    "add": ElementAdd(),
    "block": ElementAdd(),
    "radd": ElementAdd(),
    "relu": ElementAdd(q_lo=-20),
    "sub": ElementSub(),
    "mul": ElementMul(),
    "rescale": Rescale(),
    "table": Lookup(),
}


def build(case: Case) -> Program:
    """The program after the usual passes."""
    rng = np.random.default_rng(len(case.follow))
    builder = ProgramBuilder("epilogue")
    kind = int8(case.shape, 0.05, case.zero_points[0])
    own = copied(builder, "src", kind) if case.has_border else builder.placeholder("src", kind)
    pad = case.kernel // 2
    operation = Convolution(strides=(case.stride,) * 2, pads=(pad,) * 4, group=case.group)
    filters = (case.filters, case.kernel, case.kernel, case.shape[3] // case.group)
    shape = operation.output_shape(case.shape, filters)
    skips = {n: copied(builder, f"skip{n}", int8(shape, 0.04, 7)) for n, _ in binary(case)}
    last = made(shape, len(case.follow) - 1)
    wide = last.with_shape((*shape[:3], shape[3] + 5)) if case.into_slice else last
    if case.pool:
        wide = int8((shape[0], 1, 1, shape[3]), 0.03, case.zero_points[0])
    dest = builder.placeholder("dest", wide)
    if case.into_slice:
        builder.emit("fill", Splat(0.5), dest)
    value = builder.activation("value", int8(shape, 0.06, case.zero_points[1]))
    builder.emit("conv", operation, value, own, *constants(builder, "", filters, rng))
    skips |= {n: own for n, name in enumerate(case.follow) if name == "block"}
    result = follow(builder, case, value, skips, rng)
    if case.into_slice:
        builder.emit("insert", Insert((0, 0, 0, 2)), dest, result)
    elif case.pool:
        builder.emit("pool", AveragePool(kernel=shape[1:3]), dest, result)
    elif case.into_window:
        window = Convolution(pads=(1, 1, 1, 1), group=shape[3])
        filters2 = constants(builder, "2", (shape[3], 3, 3, 1), rng)
        builder.emit("window", window, dest, result, *filters2)
    else:
        builder.emit("out", Copy(), dest, result)
    program = builder.finish()
    default_pipeline().run(program, verify_program)
    return program


def copied(builder: ProgramBuilder, name: str, kind: TensorType) -> Buffer:
    """A buffer that can be padded, with the contents of an input."""
    own = builder.activation(f"own_{name}", kind)
    builder.emit(f"copy_{name}", Rescale(), own, builder.placeholder(name, kind))
    return own


def constants(builder: ProgramBuilder, name: str, filters: Shape, rng: np.random.Generator) -> list[Buffer]:
    """Results fill the range."""
    scale = 1.0 / (100 * np.sqrt(np.prod(filters[1:])))
    data = [
        rng.integers(-127, 128, filters).astype(np.int8),
        rng.integers(-5000, 5000, filters[0]).astype(np.int32),
        (scale * rng.uniform(0.5, 1.5, filters[0])).astype(np.float32),
    ]
    names = (f"filter{name}", f"bias{name}", f"multiplier{name}")
    return [builder.constant(n, array) for n, array in zip(names, data, strict=True)]


def follow(
    builder: ProgramBuilder, case: Case, value: Buffer, skips: dict[int, Buffer], rng: np.random.Generator
) -> Buffer:
    """Emit the followers; gives the last one's result."""
    for number, name in enumerate(case.follow):
        result = builder.activation(f"value{number}", made(value.type.shape, number))
        others = [skips[number]] if number in skips else []
        if name == "table":
            others = [builder.constant(f"table{number}", rng.integers(-128, 128, 256).astype(np.int8))]
        operands = [*others, value] if name in ("block", "radd") else [value, *others]
        builder.emit(f"{name}{number}", OPERATIONS[name], result, *operands)
        value = result
    return value


def binary(case: Case) -> list[tuple[int, str]]:
    return [(n, name) for n, name in enumerate(case.follow) if name not in ("block", "rescale", "table")]


def check(case: Case, isas: Sequence[str]) -> None:
    """All followers are fused, and every ISA agrees with the interpreter in every byte."""
    program = build(case)
    rng = np.random.default_rng(1)
    data = {b.name: rng.integers(-128, 128, b.type.shape).astype(np.int8) for b in program.inputs()}
    with always_fused():
        for isa in isas:
            assert fused(prepare(program, isa)) == [len(case.follow) + case.pool], isa
        assert_same_bits(program, data, list(isas))


def fused(program: Program) -> list[int]:
    return [len(group) - 1 for group in fused_groups(program)]


CASES = {
    "sum": Case(),
    "residual block": Case((2, 9, 7, 32), 32, 3, follow=("block",), into_window=True),
    "table into a slice": Case((1, 5, 7, 8), 9, follow=("table", "rescale"), into_slice=True),
    "table into a window": Case((1, 9, 7, 16), 20, 3, follow=("table",), into_window=True),
    "sum as the second": Case((1, 5, 5, 40), 72, 1, follow=("radd",)),
    "table": Case((1, 6, 9, 20), 130, 1, 2, follow=("table",)),
    "all in a row": Case((1, 5, 6, 8), 12, 3, follow=("table", "sub", "rescale", "mul")),
    "depthwise": Case((2, 8, 8, 48), 48, 3, 1, 48, follow=("add", "table")),
    "depthwise of few channels": Case((1, 6, 16, 4), 4, 3, 1, 4, follow=("table",)),
    "groups": Case((1, 6, 6, 24), 36, 3, 2, 2, follow=("table", "add")),
}


@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_one_after_the_other(name: str) -> None:
    check(CASES[name], ISAS if name in ("sum", "table") else WIDEST)


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.too_slow])
@given(
    case=st.builds(
        Case,
        shape=st.tuples(st.just(1), st.integers(1, 9), st.integers(1, 20), st.integers(1, 70)),
        filters=st.integers(1, 130),
        kernel=st.sampled_from((1, 3)),
        stride=st.integers(1, 2),
        follow=st.lists(st.sampled_from(sorted({*OPERATIONS} - {"block"})), min_size=1, max_size=4),
        zero_points=st.tuples(st.integers(-128, 127), st.integers(-128, 127)),
    ),
    isa=st.sampled_from(ISAS),
)
def test_bits_over_odd_shapes(case: Case, isa: str) -> None:
    check(case, [isa])


def test_matrix_products_have_epilogues() -> None:
    rng = np.random.default_rng(0)
    builder = ProgramBuilder("product")
    kind = int8((9, 50), 0.06, 3)
    value, dest = builder.activation("value", kind), builder.placeholder("dest", kind)
    operands = [
        builder.constant("filter", rng.integers(-127, 128, (30, 50)).astype(np.int8)),
        builder.constant("bias", rng.integers(-900, 900, 50).astype(np.int32)),
        builder.constant("multiplier", np.full(50, 0.002, np.float32)),
    ]
    builder.emit(
        "product", FullyConnected(), value, builder.placeholder("src", int8((9, 30), 0.05, 7)), *operands
    )
    table = builder.constant("table", rng.integers(-128, 128, 256).astype(np.int8))
    builder.emit("look_up", Lookup(), dest, value, table)
    program = builder.finish()
    with always_fused():
        assert all(fused(prepare(program, isa)) == [1] for isa in ISAS)
        assert_same_bits(program, {"src": rng.integers(-128, 128, (9, 30)).astype(np.int8)}, ISAS)


LISTING = """
fillpadding border None
rescale elementwise{lanes=32} None
fillpadding border None
convolution listedconvolution{pixels=4, vectors=2, by_rows=true} 0
elementadd epilogue 0
convolution depthwiseconvolution{pixels=2} None
"""


def test_a_fused_program_reads_back_and_has_one_function() -> None:
    with always_fused():
        program = prepare(build(CASES["residual block"]), "avx2")
    text = print_program(program)
    assert print_program(parse_program(text)) == text
    verify_program(parse_program(text), "test")
    plan_memory(program)
    assert "convolution_elementadd" in emit_llvm_text(program, isa_by_name("avx2"))
    lines = [f"{i.operation.opcode} {i.kernel} {i.stack}" for i in program.code if i.kernel]
    assert lines == LISTING.split("\n")[1:-1]
    work = [i for i in program.code if i.kernel]
    work[-1].stack = work[-2].stack
    program.code.remove(work[-1])
    program.code.insert(program.code.index(work[-2]) + 1, work[-1])
    with pytest.raises(VerificationError, match="stacked, but convolution is not data-parallel"):
        verify_program(program, "test")


def two_readers() -> Program:
    """What the product gives is read by a sum and by a copy."""
    rng = np.random.default_rng(0)
    builder = ProgramBuilder("two")
    kind = int8((1, 4, 4, 16), 0.05, 3)
    src, value = copied(builder, "src", kind), builder.activation("value", kind)
    builder.emit("conv", Convolution(), value, src, *constants(builder, "", (16, 1, 1, 16), rng))
    builder.emit("add", ElementAdd(), builder.placeholder("sum", kind), value, src)
    builder.emit("out", Copy(), builder.placeholder("dest", kind), value)
    return builder.finish()


def test_what_others_read_is_stored() -> None:
    with always_fused():
        assert fused(prepare(two_readers(), "avx2")) == []


def test_what_is_to_be_observed_is_stored() -> None:
    program = build(CASES["sum"])
    with always_fused():
        select_kernels(program, AVX512_VBMI, epilogues=False)
    assert fused(program) == []


def usual(case: Case, isa: VectorTarget) -> str:
    program = build(case)
    select_kernels(program, isa, epilogues=False)
    [group] = epilogue_groups(program, isa)
    return usual_way(group, isa)


def test_by_default_some_tables_are_fused_where_permutes_of_bytes_look_them_up() -> None:
    few, large = Case((1, 20, 20, 8), 64, follow=["table"]), Case((1, 400, 400, 8), 64, follow=["table"])
    assert usual(few, AVX512_VBMI) == APART and usual(large, AVX512_VBMI) == EPILOGUE
    assert usual(large, AVX512_VNNI) == APART
    assert usual(replace(large, follow=["add"]), AVX512_VBMI) == APART
    assert usual(replace(few, into_slice=True), AVX512_VBMI) == APART
    assert usual(replace(few, filters=16, into_slice=True), AVX512_VBMI) == EPILOGUE
    assert usual(replace(few, filters=16, into_slice=True), AVX512_VNNI) == APART
