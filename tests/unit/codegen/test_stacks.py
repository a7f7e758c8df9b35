"""Stacked instructions run as one loop and give the bits of one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.codegen.compiler import emit_llvm_text
from qglow.core.passes import PassLog
from qglow.core.types import ElementType, Quantization, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.elementwise import Affine, ElementAdd, ElementMul
from qglow.instructions.ops.functions import FUNCTIONS
from qglow.instructions.ops.memory import FillPadding
from qglow.instructions.ops.pool import MaxPool
from qglow.instructions.ops.quantize import Dequantize, Lookup, Quantize, Rescale
from qglow.instructions.passes.stacking import StackDataParallel, stacks
from qglow.instructions.program import Program
from qglow.targets.x86.isas import GENERIC
from tests.runtimes import assert_same_bits, kept_in_registers, plan_apart, prepare

Sigmoid = FUNCTIONS["sigmoid"]


def int8_type(shape: tuple[int, ...], scale: float, zero: int) -> TensorType:
    return TensorType(ElementType.INT8, shape, Quantization.per_tensor(scale, zero))


def stacked(builder: ProgramBuilder) -> Program:
    program = builder.finish()
    StackDataParallel().run(program, PassLog())
    return program


def swish(shape: tuple[int, ...]) -> Program:
    """int8 x * sigmoid(x) through floats, the float x used twice."""
    builder = ProgramBuilder("swish")
    src = builder.placeholder("src", int8_type(shape, 0.05, 3))
    dest = builder.placeholder("dest", int8_type(shape, 0.04, -100))
    real, power, product = (builder.activation(n, float_type(*shape)) for n in ("real", "power", "product"))
    builder.emit("dequantize", Dequantize(), real, src)
    builder.emit("sigmoid", Sigmoid(), power, real)
    builder.emit("mul", ElementMul(), product, real, power)
    builder.emit("quantize", Quantize(), dest, product)
    return stacked(builder)


@pytest.mark.parametrize("shape", [(1,), (37,), (2, 3, 5, 16), (300,)])
def test_float_island(shape: tuple[int, ...]) -> None:
    data = np.resize(np.arange(-128, 128), shape).astype(np.int8)
    program = swish(shape)
    assert_same_bits(program, {"src": data})
    prepared = prepare(program, "generic")
    assert kept_in_registers(prepared) == {"real", "power", "product"}
    plan_apart(prepared)
    text = emit_llvm_text(prepared, GENERIC)
    assert text.count("define internal") == 1 and "stack_dequantize_sigmoid_elementmul_quantize" in text


@pytest.mark.parametrize("channels", [32, 20])
def test_sum_and_normalization_with_the_sum_used_later(channels: int) -> None:
    """With 20 channels the affine map keeps a kernel of its own."""
    rng = np.random.default_rng(channels)
    kind = int8_type((2, 3, 5, channels), 0.1, -3)
    other = int8_type(kind.shape, 0.07, 5)
    builder = ProgramBuilder("residual")
    left, right = builder.placeholder("left", kind), builder.placeholder("right", other)
    dest = builder.placeholder("dest", kind)
    total, normal = builder.activation("total", kind), builder.activation("normal", other)
    looked_up = builder.activation("looked_up", other)
    factors = [builder.constant(n, rng.standard_normal(channels).astype(np.float32)) for n in ("r", "t")]
    builder.emit("add", ElementAdd(), total, left, right)
    builder.emit("affine", Affine(q_lo=5), normal, total, *factors)
    entries = builder.constant("table", rng.integers(-128, 128, 256).astype(np.int8))
    builder.emit("lookup", Lookup(), looked_up, normal, entries)
    builder.emit("last", MaxPool((1, 1)), dest, total)
    builder.emit("out", MaxPool((1, 1)), builder.placeholder("result", other), looked_up)
    program = stacked(builder)
    assert [len(group) for group in stacks(program)][0] == 3
    assert_same_bits(
        program, {n: rng.integers(-128, 128, kind.shape).astype(np.int8) for n in ("left", "right")}
    )
    wanted = {"normal"} if channels == 32 else set()
    assert kept_in_registers(prepare(program, "generic")) == wanted


def test_without_a_result_in_registers_every_loop_stays_alone() -> None:
    """The sum of a residual network is used twice, so a common loop would save no store."""
    kind = int8_type((1, 3, 5, 16), 0.1, -3)
    builder = ProgramBuilder("residual")
    src, dest = builder.placeholder("src", kind), builder.placeholder("dest", kind)
    total = builder.activation("total", kind)
    builder.emit("add", ElementAdd(), total, src, src)
    builder.emit("rescale", Rescale(), builder.placeholder("normal", kind), total)
    builder.emit("out", MaxPool((1, 1)), dest, total)
    program = stacked(builder)
    assert [len(group) for group in stacks(program)] == [2, 1]
    assert [len(group) for group in stacks(prepare(program, "generic"))] == [1, 1, 1]


def test_in_place_members_of_a_padded_buffer() -> None:
    rng = np.random.default_rng(0)
    kind = int8_type((1, 4, 6, 20), 0.1, 7)
    builder = ProgramBuilder("in_place")
    src = builder.placeholder("src", kind)
    dest = builder.placeholder("dest", int8_type((1, 4, 6, 20), 0.1, 7))
    padded = builder.activation("padded", kind, (1, 1, 1, 1))
    builder.emit("pad", FillPadding((1, 1, 1, 1)), padded)
    builder.emit("first", Rescale(), padded, src)
    builder.emit("second", ElementAdd(), padded, padded, src)
    between = builder.activation("between", kind)
    builder.emit("third", Rescale(), between, padded)
    builder.emit("fourth", ElementMul(), padded, between, padded)
    builder.emit("out", MaxPool((1, 1)), dest, padded)
    program = stacked(builder)
    assert max(len(group) for group in stacks(prepare(program, "generic"))) == 4
    assert_same_bits(program, {"src": rng.integers(-128, 128, kind.shape).astype(np.int8)})
