"""Multiply-adds of a target without an instruction for them are rounded once, also where that is rare."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.codegen.host import lacking
from qglow.core.types import Array, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.linear import FullyConnected
from qglow.numerics.fused import fused_multiply_add, gemm_chain
from qglow.targets.capabilities import machine
from qglow.targets.registry import find_target
from tests.runtimes import run_compiled

EMULATING = "x86-64-v2"
TINY = 2.0**-149


def needs_emulating() -> None:
    """Skip on processors of another kind."""
    if lacking(machine(find_target(EMULATING))) is not None:
        pytest.skip("the host cannot run it")


def products(factors: Array, weights: Array, addends: Array) -> Array:
    """`factor * weight + addend` of every factor with every pair of a weight and an addend, compiled."""
    needs_emulating()
    builder = ProgramBuilder("fused")
    src = builder.placeholder("src", float_type(len(factors), 1))
    constants = [builder.constant("filter", weights[None]), builder.constant("bias", addends)]
    dest = builder.placeholder("y", float_type(len(factors), len(weights)))
    builder.emit("op", FullyConnected(), dest, src, *constants)
    return run_compiled(builder.finish(), EMULATING, {"src": factors[:, None]})["y"]


def test_targets_of_bundles_round_once_and_generic_does_not() -> None:
    names = ("x86-64-v2", "wasm32", "wasm32-simd128", "cortex-m3", "cortex-m0plus")
    found = [machine(find_target(name)) for name in names]
    assert all(target.rounds_chains_once and not target.has_fma for target in found)
    assert not machine(find_target("generic")).rounds_chains_once


@pytest.mark.parametrize("scale", [1.0, 2.0**60, 2.0**-60, 2.0**-75, 2.0**-76])
def test_sums_near_the_middle_between_two_floats(scale: float) -> None:
    """A sum that float64 rounds to the middle lies above or below it: rounding twice does not tell which."""
    steps = np.array([1, 1 + 2**-12, 1 - 2**-12, 1 + 2**-23, 1 - 2**-24, 1.5, 3, 2**-24, 0, -1], np.float32)
    factors = (steps * np.float32(scale)).astype(np.float32)
    near = [1, 2**-23, 2**-24, 2**-25, 2**-48, 2**-54, 2**-60, 2**-80, 2**24, 2**25, 2**25 + 4, 0]
    with np.errstate(over="ignore"):
        addends = np.array([sign * x * scale**2 for x in near for sign in (1, -1)], np.float32)
    weights = np.repeat(factors, len(addends))
    bias = np.tile(addends, len(factors))
    with np.errstate(all="ignore"):
        wanted = fused_multiply_add(factors[:, None], weights, bias)
        twice = (factors[:, None].astype(np.float64) * weights + bias.astype(np.float64)).astype(np.float32)
    assert scale < 1.0 or np.any(twice != wanted)
    assert products(factors, weights, bias).tobytes() == wanted.tobytes()


def test_subnormal_sums() -> None:
    rng = np.random.default_rng(0)
    factors = (rng.standard_normal(64) * 2.0**-70).astype(np.float32)
    weights = (rng.standard_normal(512) * 2.0**-76).astype(np.float32)
    whole = rng.integers(-(2**23), 2**23, 512)
    bias = np.where(np.arange(512) % 4, whole >> (np.arange(512) % 24), 0) * TINY
    wanted = fused_multiply_add(factors[:, None], weights, bias.astype(np.float32))
    assert products(factors, weights, bias.astype(np.float32)).tobytes() == wanted.tobytes()


def test_infinities_and_nan() -> None:
    values = np.array([np.inf, -np.inf, np.nan, 0, -0.0, 1, 3.4e38, -3.4e38], np.float32)
    weights, bias = np.repeat(values, len(values)), np.tile(values, len(values))
    wanted = fused_multiply_add(values[:, None], weights, bias)
    found = products(values, weights, bias)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.array_equal(found[~np.isnan(found)], wanted[~np.isnan(wanted)])


def test_a_long_chain() -> None:
    needs_emulating()
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((5, 300)).astype(np.float32), rng.standard_normal((300, 33)).astype(np.float32)
    builder = ProgramBuilder("chain")
    src, dest = builder.placeholder("src", float_type(5, 300)), builder.placeholder("y", float_type(5, 33))
    bias = np.zeros(33, np.float32)
    builder.emit(
        "op", FullyConnected(), dest, src, builder.constant("filter", w), builder.constant("bias", bias)
    )
    found = run_compiled(builder.finish(), EMULATING, {"src": x})["y"]
    assert found.tobytes() == gemm_chain(x, w, bias).tobytes()
