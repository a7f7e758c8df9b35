"""Scales and zero points that kernels read: layers that differ in nothing else share a function."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from qglow.codegen.compiler import compile_program, emit_llvm_text
from qglow.codegen.module import ModuleBuilder
from qglow.core.passes import PassLog
from qglow.core.types import ElementType, Quantization, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.operation import Operation
from qglow.instructions.ops.elementwise import ElementAdd, ElementDiv, ElementMul, ElementPower, ElementSub
from qglow.instructions.ops.linear import MatMul
from qglow.instructions.ops.quantize import Dequantize, Quantize, Rescale
from qglow.instructions.passes.stacking import StackDataParallel
from qglow.instructions.program import Program
from qglow.targets.x86.isas import GENERIC, isa_by_name
from tests.runtimes import HOST_ISAS, assert_same_bits, machine, plan_apart, prepare

AVX2 = isa_by_name("avx2")
Numbers = tuple[float, int]
"""A scale and a zero point."""


def int8(numbers: Numbers, size: int = 300) -> TensorType:
    return TensorType(ElementType.INT8, (size,), Quantization.per_tensor(*numbers))


def one(operation: Operation, *numbers: Numbers, size: int = 300) -> Program:
    """An operation on operands, the last of which is the result, with these parameters."""
    builder = ProgramBuilder("one")
    names = [spec.name for spec in operation.signature][1 : len(numbers)]
    dest = builder.placeholder("dest", int8(numbers[-1], size))
    operands = [builder.placeholder(n, int8(p, size)) for n, p in zip(names, numbers, strict=False)]
    builder.emit("op", operation, dest, *operands)
    return builder.finish()


def kernel_text(program: Program, isa_name: str) -> tuple[object, str]:
    """The key of the one kernel, and its text."""
    prepared = prepare(program, isa_name)
    plan_apart(prepared)
    builder = ModuleBuilder(prepared, machine(isa_name))
    functions = builder.functions(None)
    [batch] = builder.batches(functions)
    [key] = functions._keys
    return key, batch[0]


BINARY = [ElementAdd(), ElementAdd(q_lo=-20), ElementSub(q_hi=90), ElementMul(), ElementDiv(), ElementPower()]
NUMBERS: list[Numbers] = [(0.05, 3), (0.031, -77), (0.5, 12), (0.05, -128), (0.07, 0), (1e-9, 4), (1e8, 4)]


@pytest.mark.parametrize("isa_name", HOST_ISAS)
@pytest.mark.parametrize("operation", BINARY, ids=repr)
def test_what_has_one_key_has_one_text(operation: Operation, isa_name: str) -> None:
    """Whatever the code takes from a number is in its key: otherwise layers would share wrong code."""
    found: dict[object, set[str]] = {}
    chosen = [
        *itertools.product(NUMBERS[:2], NUMBERS[:2], NUMBERS),
        *itertools.product(NUMBERS, NUMBERS[:1], NUMBERS[:1]),
    ]
    for numbers in chosen:
        key, text = kernel_text(one(operation, *numbers, size=70), isa_name)
        found.setdefault(key, set()).add(text)
    assert [len(texts) for texts in found.values()] == [1] * len(found)
    assert len(found) <= len(chosen) // 3


ZERO_POINTS = [(3, 5, 7), (9, -6, 1), (-128, 5, 7), (3, 0, -128)]


def matrix_products(zero_points: list[tuple[int, int, int]]) -> Program:
    """A product of matrices for each triple of zero points, the last of which is that of the result."""
    builder = ProgramBuilder("products")
    for number, zeros in enumerate(zero_points):
        kinds = [TensorType(ElementType.INT8, (9, 9), Quantization.per_tensor(0.1, zero)) for zero in zeros]
        names = [f"{name}{number}" for name in ("lhs", "rhs", "dest")]
        lhs, rhs, dest = (builder.placeholder(*given) for given in zip(names, kinds, strict=True))
        builder.emit(f"op{number}", MatMul(), dest, lhs, rhs)
    return builder.finish()


@pytest.mark.parametrize("isa_name", HOST_ISAS)
def test_products_that_differ_in_zero_points_have_one_text(isa_name: str) -> None:
    """Zero points that memory holds as 0, and a right operand that is centred, have code of their own."""
    found: dict[object, set[str]] = {}
    for zeros in ZERO_POINTS:
        key, text = kernel_text(matrix_products([zeros]), isa_name)
        found.setdefault(key, set()).add(text)
    assert [len(texts) for texts in found.values()] == [1] * len(found)
    assert len(found) < len(ZERO_POINTS)


def test_products_that_share_code_read_their_own_zero_points() -> None:
    program, rng = matrix_products(ZERO_POINTS), np.random.default_rng(0)
    inputs = {b.name: rng.integers(-128, 128, (9, 9)).astype(np.int8) for b in program.inputs()}
    assert_same_bits(program, inputs)


def test_layers_that_differ_in_scales_are_emitted_once() -> None:
    builder = ProgramBuilder("layers")
    values = [builder.placeholder("src", int8((0.05, 3)))]
    numbers = [(0.031, -7), (0.11, 9), (0.2, 1)]
    values += [builder.activation(f"value{i}", int8(n)) for i, n in enumerate(numbers)]
    values.append(builder.placeholder("dest", int8((0.4, 2))))
    other = builder.placeholder("other", int8((0.02, 5)))
    for number, (src, dest) in enumerate(itertools.pairwise(values)):
        builder.emit(f"add{number}", ElementAdd(), dest, src, other)
    program = builder.finish()
    rng = np.random.default_rng(0)
    inputs = {name: rng.integers(-128, 128, 300).astype(np.int8) for name in ("src", "other")}
    assert_same_bits(program, inputs)
    prepared = prepare(program, "avx2")
    plan_apart(prepared)
    assert emit_llvm_text(prepared, AVX2).count("define internal") == 1
    assert len(compile_program(prepared, AVX2).objects) == 2


def test_stacks_that_differ_in_scales_are_emitted_once() -> None:
    builder = ProgramBuilder("stacks")
    for number, scales in enumerate([(0.05, 0.03), (0.04, 0.06)]):
        src = builder.placeholder(f"src{number}", int8((scales[0], 3)))
        real, square = (builder.activation(f"{n}{number}", float_type(300)) for n in ("real", "square"))
        builder.emit(f"dequantize{number}", Dequantize(), real, src)
        builder.emit(f"square{number}", ElementMul(), square, real, real)
        dest = builder.placeholder(f"dest{number}", int8((scales[1], -40)))
        builder.emit(f"quantize{number}", Quantize(), dest, square)
    program = builder.finish()
    StackDataParallel().run(program, PassLog())
    data = np.resize(np.arange(-128, 128), 300).astype(np.int8)
    assert_same_bits(program, {"src0": data, "src1": data[::-1].copy()})
    prepared = prepare(program, "generic")
    plan_apart(prepared)
    assert emit_llvm_text(prepared, GENERIC).count("define internal") == 1


@pytest.mark.parametrize("size", [1, 2, 17, 65])
@pytest.mark.parametrize("scale", [0.0185, 1e-12, 1e30])
def test_single_lanes_and_scales_that_clamp_first(size: int, scale: float) -> None:
    """LLVM 22 used to break off over one lane of a number that is alike in all lanes."""
    data = np.resize([-128, 127, 5, -9], size).astype(np.int8)
    assert_same_bits(one(Rescale(-20, 100), (0.037, -9), (scale, 11), size=size), {"src": data})
