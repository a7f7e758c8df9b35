"""Elementwise kernels give the bits of their numpy reference on every ISA."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.codegen.compiler import emit_assembly
from qglow.core.passes import PassLog
from qglow.core.types import Array, ElementType, Quantization, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.operation import Operation
from qglow.instructions.ops.elementwise import Affine, Clip, ElementAdd, ElementMul, ElementSub
from qglow.instructions.ops.functions import FUNCTIONS
from qglow.instructions.ops.memory import FillPadding, Splat
from qglow.instructions.ops.quantize import Dequantize, Lookup, Quantize, Rescale
from qglow.instructions.passes.stacking import StackDataParallel
from qglow.instructions.program import Program
from qglow.kernels.elementwise.elementwise import Elementwise, elementwise_candidates
from qglow.targets.x86.isas import isa_by_name
from tests.fuzzing import examples
from tests.runtimes import ALL_ISAS, assert_same_bits, prepare

Sigmoid = FUNCTIONS["sigmoid"]
Tanh = FUNCTIONS["tanh"]

SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 1e-30],
    np.float32,
)
SIZES = [1, 15, 16, 37, 150]


def int8_type(shape: tuple[int, ...], scale: float, zero: int) -> TensorType:
    return TensorType(ElementType.INT8, shape, Quantization.per_tensor(scale, zero))


def floats(rng: np.random.Generator, shape: tuple[int, ...], spread: float = 4.0) -> Array:
    values = (rng.standard_normal(shape) * spread).astype(np.float32)
    flat = values.reshape(-1)
    count = min(flat.size, SPECIAL.size)
    flat[:count] = SPECIAL[:count]
    return values


def bytes_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(-128, 128, shape).astype(np.int8)


def one(operation: Operation, dest: TensorType, **sources: TensorType) -> Program:
    """A program of one instruction over inputs of these types."""
    builder = ProgramBuilder("one")
    inputs = [builder.placeholder(name, kind) for name, kind in sources.items()]
    builder.emit("op", operation, builder.placeholder("dest", dest), *inputs)
    return builder.finish()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("operation", [ElementAdd(), ElementSub(lo=-1.0), ElementMul(lo=0.0, hi=6.0)])
def test_float_binary(operation: Operation, size: int) -> None:
    rng = np.random.default_rng(size)
    kind = float_type(size)
    program = one(operation, kind, lhs=kind, rhs=kind)
    assert_same_bits(program, {"lhs": floats(rng, (size,)), "rhs": floats(rng, (size,))[::-1].copy()})


@pytest.mark.parametrize(
    "operation", [Clip(0.0, 6.0), Clip(lo=0.0), Clip(hi=0.0), Clip(-0.1, 0.3), Clip(), Sigmoid(), Tanh()]
)
def test_float_unary(operation: Operation) -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([floats(rng, (300,)), np.linspace(-110, 110, 701, dtype=np.float32)])
    kind = float_type(values.size)
    assert_same_bits(one(operation, kind, src=kind), {"src": values})


@pytest.mark.parametrize("zeros", [(0, 0, 0), (-128, 127, 3), (5, -7, -128)])
@pytest.mark.parametrize("scales", [(0.1, 0.1, 0.2), (0.5, 0.25, 1.0), (1e3, 1e-3, 1e-9)])
@pytest.mark.parametrize("cls", [ElementAdd, ElementSub, ElementMul])
def test_int8_binary(cls: type[Operation], scales: tuple[float, ...], zeros: tuple[int, ...]) -> None:
    every = np.arange(-128, 128, dtype=np.int8)
    lhs, rhs = (grid.reshape(-1).copy() for grid in np.meshgrid(every, every[::7]))
    kinds = [int8_type(lhs.shape, s, z) for s, z in zip(scales, zeros, strict=True)]
    operation = cls(q_lo=-100, q_hi=120)  # type: ignore[call-arg]
    program = one(operation, kinds[2], lhs=kinds[0], rhs=kinds[1])
    assert_same_bits(program, {"lhs": lhs, "rhs": rhs})


ZEROS = st.sampled_from([-128, -7, 0, 3, 127])


@settings(max_examples=examples(12))
@given(
    shape=st.tuples(st.just(1), st.integers(1, 40), st.integers(1, 5), st.integers(1, 130)),
    zeros=st.tuples(ZEROS, ZEROS, ZEROS),
    cls=st.sampled_from([ElementAdd, ElementSub, ElementMul]),
    is_spread=st.booleans(),
    bounds=st.sampled_from([(-128, 127), (-20, 100)]),
)
def test_int8_binary_over_any_shape(
    shape: tuple[int, ...],
    zeros: tuple[int, ...],
    cls: type[Operation],
    is_spread: bool,
    bounds: tuple[int, int],
) -> None:
    """Runs of whole registers, rests, and operands of one value a channel; then a rescale in the stack."""
    rng = np.random.default_rng(sum(shape))
    other = (1, 1, 1, shape[3]) if is_spread else shape
    wide = int8_type(shape, 0.1, zeros[2])
    builder = ProgramBuilder("binary")
    lhs = builder.placeholder("lhs", int8_type(shape, 0.05, zeros[0]))
    rhs = builder.placeholder("rhs", int8_type(other, 0.07, zeros[1]))
    between = builder.activation("between", wide)
    operation = cls(q_lo=bounds[0], q_hi=bounds[1])  # type: ignore[call-arg]
    builder.emit("op", operation, between, lhs, rhs)
    builder.emit("last", Rescale(), builder.placeholder("dest", int8_type(shape, 0.09, zeros[0])), between)
    program = builder.finish()
    StackDataParallel().run(program, PassLog())
    assert_same_bits(program, {"lhs": bytes_of(rng, shape), "rhs": bytes_of(rng, other)})


@pytest.mark.parametrize("channels", [1, 3, 16, 40, 276])
@pytest.mark.parametrize("tame", [True, False])
def test_affine(channels: int, tame: bool) -> None:
    rng = np.random.default_rng(channels)
    shape = (2, 3, 5, channels)
    scale, shift = (floats(rng, (channels,), 1.0)[::-1].copy() for _ in range(2))
    if tame:
        scale, shift = (rng.standard_normal(channels).astype(np.float32) for _ in range(2))
    for quantized in (False, True):
        source = int8_type(shape, 0.1, 3) if quantized else float_type(*shape)
        dest = int8_type(shape, 0.2, -5) if quantized else float_type(*shape)
        builder = ProgramBuilder("affine")
        src, out = builder.placeholder("src", source), builder.placeholder("dest", dest)
        values = builder.constant("scale", scale), builder.constant("shift", shift)
        builder.emit("op", Affine(lo=0.0, q_lo=-5), out, src, *values)
        data = bytes_of(rng, shape) if quantized else floats(rng, shape)
        assert_same_bits(builder.finish(), {"src": data})


@pytest.mark.parametrize("scale", [0.1, 0.25, 1e-30, 3e37])
@pytest.mark.parametrize("zero", [-128, 0, 5, 127])
def test_quantize(scale: float, zero: int) -> None:
    rng = np.random.default_rng(7)
    ties = (np.arange(-300, 300) / 2 * float(np.float32(scale))).clip(-3e38, 3e38).astype(np.float32)
    values = np.concatenate([floats(rng, (100,)), ties])
    program = one(Quantize(), int8_type(values.shape, scale, zero), src=float_type(values.size))
    assert_same_bits(program, {"src": values})


@pytest.mark.parametrize("zero", [0, -128, 127, 7])
@pytest.mark.parametrize("scale", [0.1, 1 / 3, 0.0078125, 1.9999999, 2.0**-110, 3e-31, 1e-39, 2e37, 1.2e36])
def test_quantize_near_ties(scale: float, zero: int) -> None:
    """Products with the reciprocal of a scale are not trusted in the middle between two integers."""
    ties = (np.arange(-260, 260, dtype=np.float64) + 0.5) * np.float64(np.float32(scale))
    with np.errstate(over="ignore"):
        near = [ties.astype(np.float32)]
    for direction in (-np.inf, np.inf):
        values = near[0]
        for _ in range(3):
            values = np.nextafter(values, np.float32(direction), dtype=np.float32)
            near.append(values)
    values = np.concatenate([*near, SPECIAL])
    program = one(Quantize(), int8_type(values.shape, scale, zero), src=float_type(values.size))
    assert_same_bits(program, {"src": values})


@pytest.mark.parametrize("size", SIZES)
def test_dequantize_and_rescale(size: int) -> None:
    data = bytes_of(np.random.default_rng(size), (size,))
    source = int8_type((size,), 0.037, -9)
    assert_same_bits(one(Dequantize(), float_type(size), src=source), {"src": data})
    for scale in (0.05, 0.0185, 1e-12):
        program = one(Rescale(-20, 100), int8_type((size,), scale, 11), src=source)
        assert_same_bits(program, {"src": data})


@pytest.mark.parametrize("size", [1, 31, 64, 65, 400])
def test_lookup(size: int) -> None:
    rng = np.random.default_rng(size)
    data = np.resize(np.arange(-128, 128), size).astype(np.int8)
    builder = ProgramBuilder("lookup")
    source, dest = int8_type((size,), 0.1, 0), int8_type((size,), 0.2, 3)
    src, out = builder.placeholder("src", source), builder.placeholder("dest", dest)
    builder.emit("op", Lookup(), out, src, builder.constant("table", bytes_of(rng, (256,))))
    assert_same_bits(builder.finish(), {"src": data}, ALL_ISAS)


@pytest.mark.parametrize(("isa", "permute"), [("avx512vnni", "w"), ("avx512vbmi", "b"), ("amx", "b")])
def test_tables_are_looked_up_by_the_widest_permute_there_is(isa: str, permute: str) -> None:
    builder = ProgramBuilder("lookup")
    kind = int8_type((400,), 0.1, 0)
    src, out = builder.placeholder("src", kind), builder.placeholder("dest", kind)
    builder.emit("op", Lookup(), out, src, builder.constant("table", np.zeros(256, np.int8)))
    prepared = prepare(builder.finish(), isa)
    found = set(re.findall(r"vperm[it]2([bw])", emit_assembly(prepared, isa_by_name(isa))))
    assert found == {permute}


@pytest.mark.parametrize(
    ("isa", "fused", "scaled"),
    [("generic", False, False), ("avx2", True, False), ("avx512vnni", True, True)],
)
def test_exp_takes_instructions_that_round_as_often(isa: str, fused: bool, scaled: bool) -> None:
    builder = ProgramBuilder("exp")
    src, dest = (builder.placeholder(name, float_type(400)) for name in ("src", "dest"))
    builder.emit("op", FUNCTIONS["exp"](), dest, src)
    code = emit_assembly(prepare(builder.finish(), isa), isa_by_name(isa))
    assert bool(re.search("vfn?m(add|sub)", code)) == fused
    assert ("vscalefps" in code) == scaled


@pytest.mark.parametrize("isa, lanes", [("avx512vnni", 32), ("avx2", 16)])
def test_functions_keep_two_registers_in_flight(isa: str, lanes: int) -> None:
    builder = ProgramBuilder("functions")
    src, dest = (builder.placeholder(name, float_type(200)) for name in ("src", "dest"))
    builder.emit("op", Tanh(), dest, src)
    assert elementwise_candidates(builder.finish().code[0], isa_by_name(isa)) == [Elementwise(lanes)]


@pytest.mark.parametrize("kind", [float_type(37), int8_type((37,), 0.1, 3)])
def test_splat(kind: TensorType) -> None:
    assert_same_bits(one(Splat(1.25), kind), {})


def test_affine_of_a_slice_into_a_padded_buffer() -> None:
    rng = np.random.default_rng(5)
    kind, part = (int8_type((2, 4, 5, c), 0.1, 3) for c in (9, 6))
    builder = ProgramBuilder("affine")
    src, dest = builder.placeholder("src", kind), builder.placeholder("dest", part)
    factors = [builder.constant(n, rng.standard_normal(6).astype(np.float32)) for n in ("scale", "shift")]
    padded = builder.activation("padded", part, (1, 1, 1, 1))
    builder.emit("pad", FillPadding((1, 1, 1, 1)), padded)
    builder.emit("in", Affine(), padded, builder.view("part", src, part, (0, 0, 0, 2)), *factors)
    builder.emit("out", Affine(), dest, padded, *factors)
    assert_same_bits(builder.finish(), {"src": bytes_of(rng, kind.shape)})


def test_slices_and_padded_buffers_keep_their_neighbours() -> None:
    """A sum of two channel slices into a third of a padded buffer."""
    rng = np.random.default_rng(3)
    shape, part = (2, 3, 4, 20), (2, 3, 4, 7)
    kind, small = float_type(*shape), float_type(*part)
    builder = ProgramBuilder("slices")
    src = builder.placeholder("src", kind)
    padded = builder.activation("padded", kind, padding=(1, 2, 0, 1))
    builder.emit("ones", Splat(1.0), padded)
    views = [
        builder.view("a", src, small, (0, 0, 0, 2)),
        builder.view("b", src, small, (0, 0, 0, 13)),
        builder.view("c", padded, small, (0, 0, 0, 5)),
    ]
    builder.emit("sum", ElementAdd(), views[2], views[0], views[1])
    builder.emit("twice", ElementAdd(), builder.placeholder("dest", kind), padded, src)
    assert_same_bits(builder.finish(), {"src": floats(rng, shape)})
