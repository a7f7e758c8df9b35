"""Convolution kernels give the bits of the reference, whatever the shape, layout and ISA."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qglow.codegen.compiler import emit_assembly, emit_llvm_text
from qglow.core.types import Array, ElementType, Quantization, Shape, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.memory import Copy, Splat
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import NO_PADDING, Buffer, Padding, Program
from qglow.kernels.emit.kernel import parse_kernel
from qglow.kernels.selection.choice import best_kernel
from qglow.numerics.fused import conv_chain
from qglow.targets.x86.isas import isa_by_name
from tests.fuzzing import examples
from tests.runtimes import HOST_ISAS, assert_same_bits, machine, prepare, run_compiled

FUSED_ISAS = [name for name in HOST_ISAS if machine(name).has_fma]
SLICE_BEFORE, SLICE_AFTER = 5, 3


@dataclass(frozen=True)
class Case:
    """One convolution and where its operands lie.

    `src_place`: "input" (no padding), "own" (a buffer that can be padded) or "slice" (channels
    of a larger buffer); `dest_place`: "output" or "slice" of a buffer with `dest_padding`.
    `deviation`: of normally distributed weights; 0 for weights of equal chances.
    """

    shape: Shape = (1, 6, 7, 8)
    filters: int = 16
    kernel: Shape = (3, 3)
    strides: Shape = (1, 1)
    pads: Shape = (0, 0, 0, 0)
    dilations: Shape = (1, 1)
    group: int = 1
    zero_points: Shape = (3, -5)
    spread: float = 1.0
    to_float: bool = False
    src_place: str = "own"
    dest_place: str = "output"
    dest_padding: Padding = NO_PADDING
    extreme: bool = False
    deviation: float = 0.0
    seed: int = 0
    bounds: tuple[tuple[str, float], ...] = ()

    @property
    def operation(self) -> Convolution:
        """The operation."""
        bounds: dict[str, Any] = dict(self.bounds)
        return Convolution(
            strides=self.strides, pads=self.pads, dilations=self.dilations, group=self.group, **bounds
        )

    @property
    def filter_shape(self) -> Shape:
        """O, KH, KW, I."""
        return (self.filters, *self.kernel, self.shape[3] // self.group)


def int8_type(shape: Shape, zero_point: int) -> TensorType:
    return TensorType(ElementType.INT8, shape, Quantization.per_tensor(0.05, zero_point))


def int8_constants(case: Case, rng: np.random.Generator) -> list[Array]:
    """Filter, bias and multiplier; results of a spread of 1 fill the range."""
    shape = case.filter_shape
    filters = rng.integers(-127, 128, shape).astype(np.int8)
    if case.deviation:
        filters = np.clip(np.rint(case.deviation * rng.standard_normal(shape)), -128, 127).astype(np.int8)
    if case.extreme:
        filters = rng.choice(np.array([-128, 127], np.int8), shape)
    bias = rng.integers(-5000, 5000, case.filters).astype(np.int32)
    scale = case.spread / (100 * math.sqrt(math.prod(shape[1:])))
    return [filters, bias, (scale * rng.uniform(0.5, 1.5, case.filters)).astype(np.float32)]


def float_constants(case: Case, rng: np.random.Generator) -> list[Array]:
    """Filter and bias."""
    filters = rng.standard_normal(case.filter_shape).astype(np.float32)
    return [filters, rng.standard_normal(case.filters).astype(np.float32)]


def build(case: Case, quantized: bool) -> tuple[Program, list[Array]]:
    """A program around the convolution, and its constants."""
    rng = np.random.default_rng(case.seed)
    constants = int8_constants(case, rng) if quantized else float_constants(case, rng)
    out_shape = case.operation.output_shape(case.shape, case.filter_shape)
    zero_src, zero_dest = case.zero_points
    kind = int8_type(case.shape, zero_src) if quantized else float_type(*case.shape)
    result = int8_type(out_shape, zero_dest) if quantized and not case.to_float else float_type(*out_shape)
    builder = ProgramBuilder("convolution")
    src = _source(builder, case, kind)
    names = ("filter", "bias", "multiplier")
    buffers = [builder.constant(name, data) for name, data in zip(names, constants, strict=False)]
    if case.dest_place == "output":
        builder.emit("conv", case.operation, builder.placeholder("dest", result), src, *buffers)
        return builder.finish(), constants
    wide = result.with_shape((*out_shape[:3], out_shape[3] + SLICE_BEFORE + SLICE_AFTER))
    base = builder.activation("base", wide, case.dest_padding)
    builder.emit("fill", Splat(0.25), base)
    dest = builder.view("part", base, result, (0, 0, 0, SLICE_BEFORE))
    builder.emit("conv", case.operation, dest, src, *buffers)
    builder.emit("out", Copy(), builder.placeholder("dest", wide), base)
    return builder.finish(), constants


def _source(builder: ProgramBuilder, case: Case, kind: TensorType) -> Buffer:
    extra = SLICE_BEFORE + SLICE_AFTER if case.src_place == "slice" else 0
    wide = kind.with_shape((*kind.shape[:3], kind.shape[3] + extra))
    given_ = builder.placeholder("src", wide)
    if case.src_place == "input":
        return given_
    own = builder.activation("own", wide)
    builder.emit("copy", Copy(), own, given_)
    return builder.view("channels", own, kind, (0, 0, 0, SLICE_BEFORE)) if extra else own


def data(case: Case, program: Program, quantized: bool) -> Array:
    rng = np.random.default_rng(case.seed + 1)
    shape = program.buffer("src").type.shape
    if not quantized:
        return rng.standard_normal(shape).astype(np.float32)
    if case.extreme:
        return rng.choice(np.array([-128, 127], np.int8), shape)
    return rng.integers(-128, 128, shape).astype(np.int8)


def check_int8(case: Case, isas: list[str] | None = None) -> None:
    """Every ISA agrees with the interpreter in every byte."""
    program, _ = build(case, quantized=True)
    assert_same_bits(program, {"src": data(case, program, quantized=True)}, isas)


def check_float(case: Case) -> None:
    """Targets with FMA agree with the chain of rule 9 in every bit."""
    program, (filters, bias) = build(case, quantized=False)
    values = data(case, program, quantized=False)
    first = SLICE_BEFORE if case.src_place == "slice" else 0
    used = values[..., first : first + case.shape[3]]
    wanted = conv_chain(
        used.transpose(0, 3, 1, 2),
        filters.transpose(0, 3, 1, 2),
        bias,
        case.strides,
        case.pads,  # type: ignore[arg-type]
        case.dilations,
        case.group,
    ).transpose(0, 2, 3, 1)
    for isa in FUSED_ISAS:
        actual = run_compiled(program, isa, {"src": values})["dest"]
        if case.dest_place == "slice":
            actual = actual[..., SLICE_BEFORE:-SLICE_AFTER]
        assert np.array_equal(actual, wanted), isa


def odd_or(*common: int, most: int) -> st.SearchStrategy[int]:
    """Common values, and any from 1 to `most`."""
    return st.sampled_from(common) | st.integers(1, most)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small convolutions of every kind."""
    group = draw(st.sampled_from([1, 1, 1, 2, 3]))
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    dilations = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    pads = tuple(draw(st.integers(0, 2)) for _ in range(4))
    sides = []
    for axis in (0, 1):
        least = dilations[axis] * (kernel[axis] - 1) + 1 - pads[axis] - pads[axis + 2]
        sides.append(max(least, draw(st.integers(1, 17))))
    channels = group * draw(odd_or(1, 3, 16, 64, most=130 // group))
    return Case(
        shape=(draw(st.sampled_from([1, 3])), *sides, channels),
        filters=group * draw(odd_or(16, 48, 64, 80, most=130 // group)),
        kernel=kernel,
        strides=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        pads=pads,
        dilations=dilations,
        group=group,
        zero_points=(draw(st.sampled_from([-128, 0, 7, 127])), draw(st.sampled_from([-128, 0, -9, 127]))),
        spread=draw(st.sampled_from([0.3, 1.0, 5.0])),
        to_float=draw(st.sampled_from([False, False, True])),
        src_place=draw(st.sampled_from(["input", "own", "slice"])),
        dest_place=draw(st.sampled_from(["output", "slice"])),
        dest_padding=draw(st.sampled_from([NO_PADDING, (1, 0, 2, 1)])),
        extreme=draw(st.sampled_from([False, False, True])),
        deviation=draw(st.sampled_from([0.0, 20.0, 45.0])),
        seed=draw(st.integers(0, 1000)),
        bounds=draw(st.sampled_from([(), (("q_lo", -5), ("q_hi", 100), ("lo", 0.0), ("hi", 6.0))])),
    )


FEW = settings(max_examples=examples(15), suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(cases())
def test_random_int8_convolutions(case: Case) -> None:
    check_int8(case)


@FEW
@given(cases())
def test_random_float_convolutions(case: Case) -> None:
    check_float(replace(case, shape=(case.shape[0], *case.shape[1:3], case.group * 5), bounds=()))


STEM = Case((1, 17, 13, 3), 64, (7, 7), (2, 2), (3, 3, 3, 3))
POINTWISE = Case((3, 7, 7, 64), 130, (1, 1))


@pytest.mark.parametrize("case", [STEM, POINTWISE, replace(STEM, src_place="input")])
def test_first_and_pointwise_layers(case: Case) -> None:
    check_int8(case)
    check_float(case)


def test_sums_beyond_the_rounding_limit_are_clamped_first() -> None:
    check_int8(Case(spread=1e7, extreme=True))
    check_int8(Case(spread=1e7, extreme=True, zero_points=(127, 127), bounds=(("q_lo", 3),)))


def test_kernel_text_is_read_back() -> None:
    program, _ = build(STEM, quantized=True)
    instruction = next(i for i in program.code if i.name == "conv")
    for name in HOST_ISAS:
        kernel = best_kernel(instruction, machine(name))
        assert parse_kernel(kernel.describe(), machine(name)) == kernel


@pytest.mark.parametrize("group", [1, 16])
def test_avx_vnni_is_vpdpbusd_without_avx512(group: int) -> None:
    program, _ = build(Case((1, 8, 8, 16), 16, group=group), quantized=True)
    isa = isa_by_name("avxvnni")
    prepared = prepare(program, isa.name)
    plan_memory(prepared)
    code = emit_assembly(prepared, isa)
    assert "{vex}\tvpdpbusd" in code or "{vex} vpdpbusd" in code
    assert "zmm" not in code and "vpmaddwd" not in code and "%k1" not in code


def test_padding_is_asked_only_as_far_as_windows_reach() -> None:
    case = Case((1, 8, 8, 4), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    program, _ = build(case, quantized=True)
    instruction = next(i for i in program.code if i.name == "conv")
    kernel = best_kernel(instruction, isa_by_name("generic"))
    assert kernel.paddings(instruction) == {"src": (1, 1, 0, 0)}
    assert kernel.scratch_bytes(instruction) > 0
    instruction.operand("src").padding = (1, 1, 0, 0)
    assert kernel.scratch_bytes(instruction) == 0


def test_layers_that_differ_in_scales_and_zero_points_share_code() -> None:
    """Scales are in the multipliers, and zero points are read."""
    builder = ProgramBuilder("shared")
    case = Case()
    constants = int8_constants(case, np.random.default_rng(0))
    data_ = {}
    for number, zero_point in enumerate([3, 3, 4]):
        kind = TensorType(ElementType.INT8, case.shape, Quantization.per_tensor(0.1 + number, zero_point))
        src = builder.placeholder(f"src{number}", kind)
        dest = builder.placeholder(f"dest{number}", int8_type((1, 4, 5, 16), 0))
        buffers = [builder.constant(f"c{number}", array) for array in constants]
        builder.emit("conv", case.operation, dest, src, *buffers)
        data_[src.name] = np.random.default_rng(number).integers(-128, 128, case.shape).astype(np.int8)
    program = builder.finish()
    assert_same_bits(program, data_)
    prepared = prepare(program, "generic")
    plan_memory(prepared)
    assert emit_llvm_text(prepared, isa_by_name("generic")).count("define internal") == 1
