"""Float results of products on a matrix unit go through what follows before they are stored: equal bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qglow.core.types import ElementType, Quantization, Shape, TensorType
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.operation import Operation
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.elementwise import ElementAdd, ElementMul
from qglow.instructions.ops.functions import FUNCTIONS
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.ops.memory import Copy, Splat
from qglow.instructions.ops.movement import Insert
from qglow.instructions.ops.quantize import Lookup, Quantize
from qglow.instructions.passes import default_pipeline
from qglow.instructions.program import Buffer, Program
from qglow.instructions.verifier import verify_program
from qglow.kernels.selection.epilogue_choice import epilogue_groups, fused_groups
from qglow.targets.x86.isas import host_isas, isa_by_name
from tests.fuzzing import examples
from tests.runtimes import assert_same_bits, prepare
from tests.unit.targets.x86.test_amx import only_tiles

TILED = [name for name in ("amx-emulated", "amx") if isa_by_name(name) in host_isas(emulated=True)]
pytestmark = pytest.mark.skipif(not TILED, reason="the host cannot emulate AMX")

OPERATIONS: dict[str, Operation] = {
    "gelu": FUNCTIONS["gelu"](),
    "silu": FUNCTIONS["swish"](),
    "add": ElementAdd(),
    "mul": ElementMul(),
    "quantize": Quantize(),
    "table": Lookup(),
}
BINARY = ("add", "mul")


@dataclass(frozen=True)
class Case:
    """A product of `rows` by `columns` with float results, and `follow` behind it.

    by_rows: whether rows have scales of their own, and columns addends. into_slice: whether the last result
    is part of a wider one. images: how many the rows are seen as behind the product, 0 for a plain matrix.
    """

    rows: int = 40
    depth: int = 200
    columns: int = 70
    follow: Sequence[str] = ("gelu", "quantize")
    by_rows: bool = False
    into_slice: bool = False
    images: int = 0


def int8(shape: Shape, scale: float, zero_point: int) -> TensorType:
    return TensorType(ElementType.INT8, shape, Quantization.per_tensor(scale, zero_point))


def floats(shape: Shape) -> TensorType:
    return TensorType(ElementType.FLOAT, shape)


def build(case: Case) -> Program:
    """The program after the usual passes."""
    rng = np.random.default_rng(0)
    builder = ProgramBuilder("floats")
    shape, dest = (case.rows, case.columns), None
    if case.into_slice:
        wide = (case.rows, case.columns + 5)
        dest = builder.placeholder("dest", last_type(case.follow, floats(wide)))
        builder.emit("fill", Splat(0.5), dest)
    zero_point = 0 if case.by_rows else 7
    operands = [
        builder.placeholder("src", int8((case.rows, case.depth), 1.0 if case.by_rows else 0.05, zero_point)),
        builder.constant("filter", rng.integers(-127, 128, (case.depth, case.columns)).astype(np.int8)),
        builder.constant("bias", rng.integers(-900, 900, case.columns).astype(np.int32)),
        builder.constant("multiplier", rng.uniform(1e-5, 1e-4, case.columns).astype(np.float32)),
    ]
    if case.by_rows:
        operands += [
            builder.placeholder("row_scales", floats((case.rows, 1))),
            builder.constant("addend", rng.normal(size=case.columns).astype(np.float32)),
        ]
    value = builder.activation("value", floats(shape))
    builder.emit("product", FullyConnected(), value, *operands)
    if case.images:
        seen = floats((case.images, case.rows // case.images, case.columns))
        value = builder.view("images", value, seen)
    return finished(builder, follow(builder, case.follow, value, rng), dest)


def last_type(names: Sequence[str], kind: TensorType) -> TensorType:
    """The type of the last follower's result, where `kind` is that of the product."""
    for number, name in enumerate(names):
        if name in ("quantize", "table") or not kind.is_float:
            kind = int8(kind.shape, 0.02 + 0.01 * number, -9)
    return kind


def follow(builder: ProgramBuilder, names: Sequence[str], value: Buffer, rng: np.random.Generator) -> Buffer:
    """Emit the followers; gives the last one's result."""
    for number, name in enumerate(names):
        others = []
        if name in BINARY:
            others = [builder.placeholder(f"beside{number}", value.type)]
        elif name == "table":
            others = [builder.constant(f"table{number}", rng.integers(-128, 128, 256).astype(np.int8))]
        result = builder.activation(f"value{number}", last_type(names[: number + 1], value.type))
        builder.emit(f"{name}{number}", OPERATIONS[name], result, value, *others)
        value = result
    return value


def finished(builder: ProgramBuilder, result: Buffer, dest: Buffer | None = None) -> Program:
    """The program whose last result is copied, or put into a wider `dest`."""
    if dest is not None:
        builder.emit("insert", Insert((0, 2)), dest, result)
    else:
        builder.emit("out", Copy(), builder.placeholder("dest", result.type), result)
    program = builder.finish()
    default_pipeline().run(program, verify_program)
    return program


def fused(program: Program) -> list[int]:
    return [len(group) - 1 for group in fused_groups(program)]


def inputs(program: Program) -> dict[str, np.ndarray]:
    rng, found = np.random.default_rng(1), {}
    for buffer in program.inputs():
        shape = buffer.type.shape
        numbers = rng.normal(size=shape).astype(np.float32)
        found[buffer.name] = (
            numbers if buffer.type.is_float else rng.integers(-127, 128, shape).astype(np.int8)
        )
    return found


def check(case: Case, wanted: int, isas: Sequence[str]) -> None:
    """So many followers are fused, with the bits of the interpreter."""
    program = build(case)
    with only_tiles():
        for isa in isas:
            assert fused(prepare(program, isa)) == ([wanted] if wanted else []), isa
        assert_same_bits(program, inputs(program), list(isas))


CASES = {
    "a function and bytes": Case(),
    "a function alone": Case(follow=("gelu",), by_rows=True),
    "a residual sum": Case(follow=("add",)),
    "a gate": Case(follow=("silu", "mul"), by_rows=True),
    "floats beside bytes": Case(follow=("mul", "quantize")),
    "bytes behind bytes": Case(follow=("gelu", "quantize", "table", "add")),
    "images": Case(images=2),
    "a residual sum of images": Case(follow=("add",), images=1, by_rows=True),
    "bytes behind a sum of images": Case(follow=("gelu", "add", "quantize", "add"), images=4),
    "one row": Case(rows=1),
    "one number": Case(1, 1, 1),
    "few steps": Case(rows=33, depth=20),
    "one vector": Case(rows=17, columns=9, depth=900),
    "floats in a slice": Case(follow=("gelu",), into_slice=True),
}


@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_one_after_the_other(name: str) -> None:
    case = CASES[name]
    check(case, len(case.follow), TILED)


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.too_slow])
@given(
    case=st.builds(
        Case,
        rows=st.integers(1, 70),
        depth=st.integers(1, 300),
        columns=st.integers(1, 100),
        follow=st.lists(st.sampled_from(sorted({*OPERATIONS} - {"table", "quantize"})), max_size=2).map(
            lambda names: ["gelu", *names, "quantize"]
        ),
        by_rows=st.booleans(),
    )
)
def test_bits_over_odd_shapes(case: Case) -> None:
    check(case, len(case.follow), TILED[:1])


def test_bytes_in_a_slice_are_stored_by_a_loop_of_their_own() -> None:
    check(Case(into_slice=True), 1, TILED[:1])


def test_convolutions_pass_floats_too() -> None:
    rng = np.random.default_rng(0)
    builder = ProgramBuilder("images")
    src = builder.placeholder("src", int8((2, 9, 7, 30), 0.05, 3))
    operands = [
        builder.constant("filter", rng.integers(-127, 128, (40, 3, 3, 30)).astype(np.int8)),
        builder.constant("bias", rng.integers(-900, 900, 40).astype(np.int32)),
        builder.constant("multiplier", rng.uniform(1e-5, 1e-4, 40).astype(np.float32)),
    ]
    operation = Convolution(pads=(1, 1, 1, 1))
    value = builder.activation("value", floats(operation.output_shape((2, 9, 7, 30), (40, 3, 3, 30))))
    builder.emit("conv", operation, value, src, *operands)
    program = finished(builder, follow(builder, ("gelu", "quantize"), value, rng))
    with only_tiles():
        assert fused(prepare(program, TILED[0])) == [2]
        assert_same_bits(program, inputs(program), TILED)


def test_vector_kernels_store_floats() -> None:
    program = build(Case())
    for isa in ("generic", "avx2"):
        assert epilogue_groups(prepare(program, isa), isa_by_name(isa)) == []
