"""Float arithmetic of the rules in integers has the bits of numpy's floats."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from qglow.codegen.jit import link
from qglow.codegen.target import object_code
from qglow.core.types import Array
from qglow.kernels.arithmetic.soft_float import (
    add_in_integers,
    divide_in_integers,
    nan_in_integers,
    rescale_in_integers,
    round_in_integers,
    scale_in_integers,
    sums_in_integers,
)
from qglow.kernels.emit.builder import F32, I32, I64, PTR, VOID, Value, vec
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


SCALES = (
    0.0173,
    0.25,
    1.0,
    1.5,
    3.3e-5,
    2.0**-24 * 255,
    700.3,
    float(np.nextafter(np.float32(2), np.float32(1))),
)
RATIOS = [
    (0.31, 0.77),
    (1.0, 1.0),
    (0.5, 0.5),
    (3.9, 0.0021),
    (1.9999999, 0.33),
    (12.0, 1e-6),
    (2.0**-9, 0.125),
]


def run_on(emit: Callable[[Emitter, list[Value]], Value], *operands: Array) -> Array:
    """Evaluate code over arrays of equal lengths, whose elements have 32 bits, as the result does."""
    module = ir.Module("soft")
    module.triple = PORTABLE.triple
    kinds = [F32 if array.dtype == np.float32 else I32 for array in operands]
    e = Emitter(ir.Function(module, ir.FunctionType(VOID, [*[PTR] * (len(kinds) + 1), I64]), "f"), PORTABLE)
    *pointers, dest, count = e.function.args
    with e.loop(0, count, LANES) as index:
        places = [e.offset(pointer, e.scaled(index, 4)) for pointer in (*pointers, dest)]
        loaded = [e.load(place, vec(kind, LANES)) for place, kind in zip(places[:-1], kinds, strict=True)]
        e.store(emit(e, loaded), places[-1])
    e.b.ret_void()
    code = link([object_code(str(module), PORTABLE)], PORTABLE, ["f"])
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(places), ctypes.c_int64)(code.addresses["f"])
    found = np.zeros(len(operands[0]), np.int32)
    function(*(array.ctypes.data for array in (*operands, found)), len(found))
    return found


def same_steps(found: Array, value: Array) -> None:
    """Compare int32 with float32 rounded half to even, beyond 2^22 their signs."""
    wanted = np.rint(value.astype(np.float64))
    small = np.abs(wanted) < LARGE
    assert np.array_equal(found[small], wanted[small].astype(np.int32))
    assert np.array_equal(np.sign(found[~small]), np.sign(wanted[~small]))
    assert (np.abs(found[~small].astype(np.int64)) >= LARGE - 1).all()


@pytest.mark.parametrize("scale", SCALES)
def test_quotients(scale: float) -> None:
    """Random floats of all sizes, and those whose quotients are near halves."""
    random = np.random.default_rng(1)
    divisor = np.float32(scale)
    halves = (random.integers(-400, 400, CASES) + 0.5) * float(divisor)
    near = (halves.astype(np.float32).view(np.int32) + random.integers(-2, 3, CASES)).astype(np.int32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-40, 3e38, -3e38], np.float32)
    any_bits = random.integers(0, 1 << 32, CASES, np.uint32).view(np.float32)
    x = np.concatenate([near.view(np.float32), special, any_bits[~np.isnan(any_bits)]])
    x = x[: len(x) // LANES * LANES]
    with np.errstate(over="ignore", under="ignore"):
        same_steps(run_on(lambda e, v: divide_in_integers(e, v[0], scale), x), x / divisor)


def test_nan_is_told_from_all_other_floats() -> None:
    x = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -1.0, 3e38, 1e-45] * LANES, np.float32)
    found = run_on(lambda e, v: e.b.zext(nan_in_integers(e, v[0]), vec(I32, LANES)), x)
    assert np.array_equal(found, np.isnan(x))


@pytest.mark.parametrize("scale", [*SCALES, 2.0**-100, 2.0**100])
def test_reals_of_integers(scale: float) -> None:
    steps = np.arange(-255, 257, dtype=np.int32)[: 511 // LANES * LANES]
    found = run_on(lambda e, v: e.b.bitcast(scale_in_integers(e, v[0], scale), vec(I32, LANES)), steps)
    assert np.array_equal(found.view(np.float32), steps.astype(np.float32) * np.float32(scale))
    assert not np.signbit(found.view(np.float32)[steps == 0]).any()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("ratios", RATIOS)
def test_sums_of_all_integers(ratios: tuple[float, float], sign: int) -> None:
    assert sums_in_integers(*ratios)
    check_sum(ratios, sign)


@pytest.mark.parametrize("seed", range(12))
def test_sums_near_halves(seed: int) -> None:
    """Ratios of which a sum meets a half in float32, exactly or but for the last digit."""
    random = np.random.default_rng(seed)
    a, b = (int(n) for n in random.integers(1, 255, 2))
    first = np.float32(random.uniform(0.1, 2.0))
    half = np.floor(float(first) * a) + random.integers(1, 3) + 0.5
    second = np.float32((half - float(np.float32(a) * first)) / b)
    second = np.nextafter(second, np.float32(random.choice([0, 9]))) if seed % 3 else second
    check_sum((float(first), float(second)), 1)


def check_sum(ratios: tuple[float, float], sign: int) -> None:
    """Compare the sums of all pairs of integers of 9 bits."""
    lhs, rhs = (
        side.ravel().astype(np.int32) for side in np.meshgrid(np.arange(-255, 256), np.arange(-255, 257))
    )
    lhs, rhs = np.ascontiguousarray(lhs), np.ascontiguousarray(rhs)
    value = lhs.astype(np.float32) * np.float32(ratios[0]) + sign * (
        rhs.astype(np.float32) * np.float32(ratios[1])
    )
    found = run_on(lambda e, v: add_in_integers(e, v[0], ratios[0], v[1], ratios[1], sign), lhs, rhs)
    same_steps(found, value)


def test_ratios_out_of_reach_are_told() -> None:
    assert not sums_in_integers(1.0, 2.0**-31) and not sums_in_integers(2.0**-101, 1.0)
    assert not sums_in_integers(2.0**40, 2.0**40)
