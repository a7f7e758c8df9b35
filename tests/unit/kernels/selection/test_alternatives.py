"""Every kernel that may be measured for an instruction gives the same bits as every other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from qglow.core.types import Array, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.operation import Access, Operation
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.ops.memory import Copy
from qglow.instructions.passes import optimize
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Instruction, Program
from qglow.kernels.emit.kernel import MOST_VARIANTS, parse_kernel
from qglow.kernels.selection.choice import NO_CHOICES, alternatives, best_kernel, kernel_key
from qglow.kernels.selection.select import select_kernels
from qglow.lowering import lower
from qglow.targets.x86.isas import isa_by_name
from tests.runtimes import HOST_ISAS, NATIVE_ISAS, Built, machine, prepare, reference
from tests.test_runtimes import MAKERS, draw
from tests.unit.kernels.convolution.test_conv import Case, float_constants, int8_constants, int8_type

COPIES = 18
"""Instructions of a program, for one kernel each."""
INT8 = {
    "3x3": Case((1, 5, 23, 9), 40, pads=(1, 1, 1, 1)),
    "bell": Case((1, 5, 23, 36), 40, pads=(1, 1, 1, 1), group=2, deviation=42.0, zero_points=(-128, 127)),
    "1x1": Case((2, 5, 7, 40), 100, (1, 1), spread=1e7, extreme=True),
    "grouped": Case((1, 6, 9, 24), 36, group=2, strides=(2, 1), pads=(0, 1, 1, 0)),
    "depthwise": Case((1, 11, 13, 48), 48, group=48, strides=(2, 2), pads=(1, 1, 1, 1)),
}
FLOAT = {"3x3": INT8["3x3"], "depthwise": INT8["depthwise"]}


def copies(operation: Operation, constants: list[Array], source: TensorType, result: TensorType) -> Program:
    """A program with the same instruction many times, each with a result of its own."""
    builder = ProgramBuilder("copies")
    own = builder.activation("own", source)
    builder.emit("copy", Copy(), own, builder.placeholder("src", source))
    buffers = [builder.constant(f"c{number}", array) for number, array in enumerate(constants)]
    for number in range(COPIES):
        builder.emit("op", operation, builder.placeholder(f"dest{number}", result), own, *buffers)
    return builder.finish()


def convolutions(case: Case, quantized: bool) -> Program:
    rng = np.random.default_rng(case.seed)
    shape = case.operation.output_shape(case.shape, case.filter_shape)
    if quantized:
        kinds = int8_type(case.shape, case.zero_points[0]), int8_type(shape, case.zero_points[1])
        return copies(case.operation, int8_constants(case, rng), *kinds)
    return copies(case.operation, float_constants(case, rng), float_type(*case.shape), float_type(*shape))


def products(rows: int) -> Program:
    rng = np.random.default_rng(rows)
    constants = [
        rng.integers(-128, 128, (70, 150)).astype(np.int8),
        rng.integers(-9000, 9000, 150).astype(np.int32),
        np.full(150, 1e-4, np.float32),
    ]
    return copies(FullyConnected(), constants, int8_type((rows, 70), 3), int8_type((rows, 150), -5))


PROGRAMS: dict[str, Callable[[], Program]] = {
    **{f"int8 {name}": lambda case=case: convolutions(case, True) for name, case in INT8.items()},  # type: ignore[misc]
    **{f"float {name}": lambda case=case: convolutions(case, False) for name, case in FLOAT.items()},  # type: ignore[misc]
    "product": lambda: products(9),
    "matrix-vector": lambda: products(1),
}


def work(program: Program) -> list[Instruction]:
    return [i for i in program.code if isinstance(i.operation, Convolution | FullyConnected)]


@pytest.mark.parametrize("isa_name", HOST_ISAS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_alternative_gives_the_same_bits(name: str, isa_name: str) -> None:
    prepared = prepare(PROGRAMS[name](), isa_name)
    found = alternatives(work(prepared)[0], machine(isa_name))
    assert len(found) <= COPIES
    for instruction, kernel in zip(work(prepared), found, strict=False):
        instruction.kernel = kernel.describe()
    plan_memory(prepared)
    source = prepared.buffer("src").type
    data = np.random.default_rng(1).integers(-128, 128, source.shape).astype(source.element.dtype)
    built = Built(prepared, isa_name)
    for parts in (1, *((3,) if built.is_shared else ())):
        results = built.run({"src": data}, {}, parts).outputs
        for number, kernel in enumerate(found):
            same = np.array_equal(results[f"dest{number}"], results["dest0"])
            assert same, f"{kernel.describe()} in {parts} parts"
    if source.is_quantized:
        wanted = reference(prepared, {"src": data}).outputs["dest0"]
        assert np.array_equal(results["dest0"], wanted)


@pytest.mark.parametrize("isa_name", HOST_ISAS)
def test_there_is_a_bounded_number_and_each_is_read_back(isa_name: str) -> None:
    isa = machine(isa_name)
    instruction = work(prepare(convolutions(INT8["3x3"], True), isa_name))[0]
    found = alternatives(instruction, isa)
    assert found[0] == best_kernel(instruction, isa)
    assert 1 < len(found) <= 2 * (MOST_VARIANTS + 1) and len(set(found)) == len(found)
    assert all(parse_kernel(kernel.describe(), isa) == kernel for kernel in found)


def test_a_choice_is_taken_where_its_key_is_that_of_the_instruction() -> None:
    isa = isa_by_name("avx2")
    program = prepare(convolutions(INT8["3x3"], True), "avx2")
    first = work(program)[0]
    estimate, other = alternatives(first, isa)[:2]
    key = kernel_key(first, isa)
    assert best_kernel(first, isa, {key: other.describe()}) == other
    assert best_kernel(first, isa, {key: "tiledconvolution{pixels=977}"}) == estimate
    assert best_kernel(first, isa, {key + " ": other.describe()}) == estimate
    changed = convolutions(INT8["3x3"], True)
    select_kernels(changed, isa, {key: other.describe()})
    assert {i.kernel for i in work(changed)} == {other.describe()}
    usual = convolutions(INT8["3x3"], True)
    select_kernels(usual, isa, NO_CHOICES)
    assert {i.kernel for i in work(usual)} == {estimate.describe()}


@pytest.mark.parametrize("family", ["attention", "blocks", "conv", "recurrence"])
def test_working_memory_changes_no_choice(family: str) -> None:
    """Keys are looked up after kernels were chosen too, and instructions have their working memory then."""
    isa, found = NATIVE_ISAS[-1], 0
    for name, make in MAKERS:
        if not name.startswith(f"{family}-"):
            continue
        program = lower(draw(name, make).graph)
        optimize(program)
        before = {one.name: one for one in program.code}
        for one in prepare(program, isa).code:
            has_scratch = any(spec.access is Access.SCRATCH for spec, _ in one.operands())
            if has_scratch and one.name in before:
                found += 1
                kernel = best_kernel(one, machine(isa)).describe()
                assert kernel == best_kernel(before[one.name], machine(isa)).describe(), name
    assert found
