"""Matrix products give the bits of the reference on every ISA."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.codegen.compiler import emit_llvm_text
from qglow.core.types import ElementType, Quantization, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.linear import FullyConnected
from qglow.kernels.tiled import product
from qglow.numerics.fused import gemm_chain
from qglow.targets.x86.isas import AVX512_VNNI
from tests.runtimes import (
    HOST_ISAS,
    assert_same_bits,
    machine,
    plan_apart,
    prepare,
    run_compiled,
)

SHAPES = [(1, 1, 1), (1, 50, 10), (3, 64, 130), (7, 31, 17), (1, 260, 100), (20, 6, 33)]


def int8_type(shape: tuple[int, int], zero_point: int) -> TensorType:
    return TensorType(ElementType.INT8, shape, Quantization.per_tensor(0.05, zero_point))


def check_int8_product(
    shape: tuple[int, int, int], zero_points: tuple[int, int], isas: list[str] | None = None
) -> None:
    """An int8 and a float result of one product, each in every bit."""
    rows, depth, columns = shape
    rng = np.random.default_rng(depth)
    builder = ProgramBuilder("linear")
    src = builder.placeholder("src", int8_type((rows, depth), zero_points[0]))
    constants = [
        builder.constant("filter", rng.integers(-128, 128, (depth, columns)).astype(np.int8)),
        builder.constant("bias", rng.integers(-9000, 9000, columns).astype(np.int32)),
        builder.constant("multiplier", (rng.uniform(0.5, 1.5, columns) / 100 / depth).astype(np.float32)),
    ]
    kinds = {"bytes": int8_type((rows, columns), zero_points[1]), "floats": float_type(rows, columns)}
    for name, kind in kinds.items():
        builder.emit(
            "op", FullyConnected(q_lo=-100, hi=0.5), builder.placeholder(name, kind), src, *constants
        )
    data = rng.integers(-128, 128, (rows, depth)).astype(np.int8)
    assert_same_bits(builder.finish(), {"src": data}, isas)


@pytest.mark.parametrize("shape", SHAPES)
def test_int8(shape: tuple[int, int, int]) -> None:
    check_int8_product(shape, (3, -5))


@pytest.mark.parametrize("zero_points", [(-128, 127), (127, -128)])
def test_int8_with_extreme_zero_points(zero_points: tuple[int, int]) -> None:
    check_int8_product((3, 20, 20), zero_points)


@pytest.mark.parametrize(("rows", "early", "alone"), [(1, False, False), (8, True, True), (40, True, False)])
def test_weights_are_fetched_early(
    rows: int, early: bool, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one tile fetches what it reads soon, several tiles the next block. One row needs no help."""
    monkeypatch.setattr(product, "ALONE_AHEAD", 12345)
    builder = ProgramBuilder("linear")
    src, dest = (builder.placeholder(n, float_type(rows, k)) for n, k in (("src", 512), ("dest", 512)))
    filters = builder.constant("filter", np.ones((512, 512), np.float32))
    builder.emit(
        "layer", FullyConnected(), dest, src, filters, builder.constant("bias", np.ones(512, np.float32))
    )
    program = prepare(builder.finish(), AVX512_VNNI.name)
    plan_apart(program)
    text = emit_llvm_text(program, AVX512_VNNI)
    assert ("llvm.prefetch" in text) is early
    assert ("i64 12345" in text) is alone


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_float_is_one_chain(shape: tuple[int, int, int], with_bias: bool) -> None:
    rows, depth, columns = shape
    rng = np.random.default_rng(depth)
    weights = rng.standard_normal((depth, columns)).astype(np.float32)
    bias = rng.standard_normal(columns).astype(np.float32) if with_bias else None
    data = rng.standard_normal((rows, depth)).astype(np.float32)
    builder = ProgramBuilder("linear")
    src = builder.placeholder("src", float_type(rows, depth))
    dest = builder.placeholder("dest", float_type(rows, columns))
    constants = [builder.constant("filter", weights)]
    constants += [builder.constant("bias", bias)] if bias is not None else []
    builder.emit("op", FullyConnected(), dest, src, *constants)
    program = builder.finish()
    wanted = gemm_chain(data, weights, bias)
    for name in HOST_ISAS:
        actual = run_compiled(program, name, {"src": data})["dest"]
        if machine(name).has_fma:
            assert np.array_equal(actual, wanted), name
        else:
            np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-5 * depth)
