"""Weights of 16 bits are widened in registers, and float chains over them are those of numerics."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.codegen.compiler import compile_program
from qglow.core.types import ElementType, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.functions import FUNCTIONS
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.ops.logic import Cast
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.numerics.fused import conv_chain, gemm_chain
from qglow.numerics.half import round_to, store, widen
from qglow.targets.x86.isas import isa_by_name
from tests.runtimes import ALL_ISAS, HOST_ISAS, assert_same_bits, machine, prepare, run_compiled

ELEMENTS = {"float16": ElementType.FLOAT16, "bfloat16": ElementType.BFLOAT16}
HALF = ElementType.FLOAT16
WITH_FMA = [name for name in HOST_ISAS if machine(name).has_fma]


def product(rows: int, stored: np.ndarray, bias: np.ndarray | None = None) -> Program:
    depth, columns = stored.shape
    builder = ProgramBuilder("product")
    dest, src = (builder.placeholder(n, float_type(rows, s)) for n, s in (("y", columns), ("x", depth)))
    filters = builder.constant("w", stored)
    shift = None if bias is None else builder.constant("b", bias)
    builder.emit("op", FullyConnected(), dest, src, filters, shift)
    return builder.finish()


@pytest.mark.parametrize("element", list(ELEMENTS))
def test_every_pattern_is_widened_exactly(element: str) -> None:
    """On every instruction set: without F16C in integers, and no function of a library is needed."""
    every = np.arange(2**16, dtype=np.uint16).view(ELEMENTS[element].dtype)[None]
    assert_same_bits(product(1, every), {"x": np.ones((1, 1), np.float32)}, ALL_ISAS)


@pytest.mark.parametrize("element", list(ELEMENTS))
@pytest.mark.parametrize("isa", WITH_FMA)
def test_sums_are_chains_of_fused_multiply_adds(element: str, isa: str) -> None:
    random = np.random.default_rng(5)
    x, bias = random.normal(size=(3, 50)).astype(np.float32), random.normal(size=37).astype(np.float32)
    stored = store(random.normal(size=(50, 37)).astype(np.float32), element)
    found = run_compiled(product(3, stored, bias), isa, {"x": x})["y"]
    assert np.array_equal(found, gemm_chain(x, widen(stored), bias))


@pytest.mark.parametrize("group", [1, 24])
@pytest.mark.parametrize("isa", WITH_FMA)
def test_convolutions_are_such_chains(group: int, isa: str) -> None:
    random = np.random.default_rng(6)
    image = random.normal(size=(1, 24, 9, 7)).astype(np.float32)
    stored = store(random.normal(size=(24, 24 // group, 3, 3)).astype(np.float32), "bfloat16")
    builder = ProgramBuilder("conv")
    dest, src = (builder.placeholder(n, float_type(1, 9, 7, 24)) for n in ("y", "x"))
    filters = builder.constant("w", stored.transpose(0, 2, 3, 1).copy())
    builder.emit("op", Convolution(pads=(1, 1, 1, 1), group=group), dest, src, filters)
    found = run_compiled(builder.finish(), isa, {"x": image.transpose(0, 2, 3, 1).copy()})["y"]
    expected = conv_chain(image, widen(stored), pads=(1, 1, 1, 1), group=group)
    assert np.array_equal(found.transpose(0, 3, 1, 2), expected)


@pytest.mark.parametrize("element", list(ELEMENTS))
def test_rounding_gives_the_bits_of_numerics_also_of_nan(element: str) -> None:
    """Patterns of all exponents, ties, numbers beyond float16, subnormals, NaN with payloads."""
    patterns = np.arange(0, 2**32, 2**32 // 4000 + 1, dtype=np.uint64)
    ends = [p + d for p in (0x33000000, 0x38800000, 0x477FE000, 0x477FF000) for d in (-1, 0, 1)]
    x = np.concatenate([patterns, ends, [0x7F800001, 0xFFC12345, 0x7F7FFFFF]]).astype(np.uint32)
    builder = ProgramBuilder("round")
    kind = float_type(x.size)
    builder.emit(
        "op", FUNCTIONS["roundto"](element), builder.placeholder("y", kind), builder.placeholder("x", kind)
    )
    program, expected = builder.finish(), round_to(x.view(np.float32), element).view(np.uint32)
    for isa in ALL_ISAS:
        found = run_compiled(program, isa, {"x": x.view(np.float32)})["y"].view(np.uint32)
        assert np.array_equal(found, expected), isa


def test_packed_weights_take_half_of_the_bytes() -> None:
    data = np.ones((64, 64), np.float32)
    sizes = {}
    for name, stored in (("float32", data), *((e, store(data, e)) for e in ELEMENTS)):
        program = prepare(product(1, stored), "generic")
        plan_memory(program)
        sizes[name] = len(compile_program(program, isa_by_name("generic")).weights)
    assert sizes["float16"] == sizes["bfloat16"] < 0.55 * sizes["float32"]


def packed(data: np.ndarray, isa: str) -> int:
    program = prepare(product(1, data), isa)
    plan_memory(program)
    return len(compile_program(program, machine(isa)).weights)


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512vnni"])
def test_floats_that_16_bits_hold_are_packed_in_them_where_they_are_widened_by_instructions(isa: str) -> None:
    data = np.random.default_rng(4).normal(size=(256, 96)).astype(np.float32)
    whole, share = packed(data, isa), 0.55 if machine(isa).converts_half else 1.0
    assert all(packed(round_to(data, element), isa) <= share * whole for element in ELEMENTS)
    one_is_none = round_to(data, "float16")
    one_is_none[-1, -1] = np.pi
    assert packed(one_is_none, isa) == whole


@pytest.mark.parametrize("element", list(ELEMENTS))
@pytest.mark.parametrize("isa", WITH_FMA)
def test_such_floats_give_the_chains_of_their_numbers(element: str, isa: str) -> None:
    random = np.random.default_rng(7)
    x, data = (random.normal(size=shape).astype(np.float32) for shape in ((3, 256), (256, 99)))
    data *= (2.0 ** random.integers(-30, 8, data.shape)).astype(np.float32)  # subnormals of float16 too
    data = round_to(data, element)
    data[0, :3] = 0.0, -0.0, np.inf
    found = run_compiled(product(3, data), isa, {"x": x})["y"]
    assert np.array_equal(found, gemm_chain(x, data, None), equal_nan=True)


@pytest.mark.parametrize("element", list(ELEMENTS))
def test_inputs_and_outputs_of_16_bits_are_cast_on_every_instruction_set(element: str) -> None:
    kind = TensorType(ELEMENTS[element], (1 << 16,))
    builder = ProgramBuilder("cast")
    src, wide = builder.placeholder("x", kind), builder.placeholder("w", float_type(1 << 16))
    middle, dest = builder.placeholder("m", float_type(1 << 16)), builder.placeholder("y", kind)
    builder.emit("widen", Cast(), middle, src)
    builder.emit("narrow", Cast(), dest, wide)
    random = np.random.default_rng(8)
    reals = random.integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32)
    reals[: 1 << 12] = random.normal(size=1 << 12) * 2.0 ** random.integers(-30, 20, 1 << 12)
    every = np.arange(2**16, dtype=np.uint16).view(kind.element.dtype)
    for isa in ALL_ISAS:
        found = run_compiled(builder.finish(), isa, {"x": every, "w": reals})
        assert np.array_equal(found["m"].view(np.uint32), widen(every).view(np.uint32))
        assert np.array_equal(found["y"].view(np.uint16), store(reals, element).view(np.uint16))
