"""Float arithmetic of the rules in integers has the bits of numpy's floats."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from qglow.codegen.jit import link
from qglow.codegen.target import object_code
from qglow.core.types import Array
from qglow.kernels.arithmetic.soft_float import rescale_in_integers, round_in_integers
from qglow.kernels.emit.builder import F32, I32, I64, PTR, VOID, vec
from qglow.kernels.emit.emitter import Emitter
from tests.portable_target import PORTABLE

LANES = 8
CASES = 1 << 20
LARGE = float(1 << 22)
"""Magnitude beyond which only the sign of a result is asked for."""


def compiled() -> ctypes._CFuncPtr:
    """`f(sums, multipliers, floats, rescaled, rounded, count)` over so many elements of each array."""
    module = ir.Module("soft")
    module.triple = PORTABLE.triple
    e = Emitter(ir.Function(module, ir.FunctionType(VOID, [*[PTR] * 5, I64]), "f"), PORTABLE)
    *pointers, count = e.function.args
    with e.loop(0, count, LANES) as index:
        sums, factors, floats, rescaled, rounded = (e.offset(p, e.scaled(index, 4)) for p in pointers)
        product = rescale_in_integers(e, e.load(sums, vec(I32, LANES)), e.load(factors, vec(F32, LANES)))
        e.store(product, rescaled)
        e.store(round_in_integers(e, e.load(floats, vec(F32, LANES))), rounded)
    e.b.ret_void()
    code = link([object_code(str(module), PORTABLE)], PORTABLE, ["f"])
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5, ctypes.c_int64)(code.addresses["f"])
    function.code = code  # type: ignore[attr-defined]
    return function


@pytest.fixture(scope="module")
def soft() -> ctypes._CFuncPtr:
    return compiled()


def check(soft: ctypes._CFuncPtr, sums: Array, multipliers: Array) -> None:
    """Compare with numpy on equally many sums (int32) and multipliers (float32)."""
    floats = sums.astype(np.float32) * multipliers
    found = [np.zeros(len(sums), np.int32) for _ in range(2)]
    arrays = (sums, multipliers, floats, *found)
    soft(*(array.ctypes.data for array in arrays), len(sums))
    wanted = np.rint(floats.astype(np.float64))
    small = np.abs(wanted) < LARGE
    for result in found:
        assert np.array_equal(result[small], wanted[small].astype(np.int32))
        assert np.array_equal(np.sign(result[~small]), np.sign(wanted[~small]))
        assert (np.abs(result[~small].astype(np.int64)) >= LARGE).all()


@pytest.mark.parametrize("seed", range(4))
def test_random_sums_and_multipliers(soft: ctypes._CFuncPtr, seed: int) -> None:
    random = np.random.default_rng(seed)
    sums = random.integers(-(1 << 31), 1 << 31, CASES) >> random.integers(0, 32, CASES)
    multipliers = random.uniform(0.5, 1.0, CASES) * 2.0 ** random.integers(-30, 2, CASES)
    check(soft, sums.astype(np.int32), multipliers.astype(np.float32))


def test_ties_and_their_neighbours(soft: ctypes._CFuncPtr) -> None:
    """Products at n + 1/2, and beside it by the last bits of the multiplier."""
    random = np.random.default_rng(9)
    sums = (random.integers(1, 1 << 24, CASES) << random.integers(0, 7, CASES)).astype(np.int32)
    sums *= random.choice([-1, 1], CASES).astype(np.int32)
    halves = random.integers(0, 300, CASES) + 0.5
    bits = (halves / np.abs(sums)).astype(np.float32).view(np.int32) + random.integers(-2, 3, CASES)
    check(soft, sums, bits.astype(np.int32).view(np.float32))


def test_ends(soft: ctypes._CFuncPtr) -> None:
    ends = [0, 1, -1, (1 << 31) - 1, -(1 << 31), (1 << 24) - 1, 1 << 24, (1 << 24) + 1, (1 << 25) + 2]
    factors = [
        1e-45,
        1e-38,
        2.0**-126,
        2.0**-30,
        0.25,
        0.5,
        np.nextafter(np.float32(0.5), np.float32(0)),
        1.0,
    ]
    sums, multipliers = np.meshgrid(np.array(ends, np.int32), np.array(factors, np.float32))
    check(soft, np.ravel(sums).copy(), np.ravel(multipliers).copy())


@given(
    st.lists(st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(97 << 23, 127 << 23)), min_size=8)
)
def test_any_sum_and_multiplier(pairs: list[tuple[int, int]]) -> None:
    whole = pairs[: len(pairs) // LANES * LANES]
    sums, bits = (np.array(column, np.int64).astype(np.int32) for column in zip(*whole, strict=True))
    check(FUNCTION, sums, bits.view(np.float32))


FUNCTION = compiled()
