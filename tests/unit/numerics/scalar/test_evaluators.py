"""One meaning, three evaluators: numpy, C and (in tests of the kernels) LLVM give the same bits."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.numerics.half import store, widen
from qglow.numerics.scalar.activations import Elu, Gelu, HardSigmoid, LeakyRelu, Swish
from qglow.numerics.scalar.algebra import Int, Real
from qglow.numerics.scalar.arrays import ArrayAlgebra, evaluate
from qglow.numerics.scalar.c_source import C_FLAGS, PREAMBLE, c_function
from qglow.numerics.scalar.clamps import clip, larger, prelu, smaller
from qglow.numerics.scalar.elementary import PowerOf, RoundTo
from qglow.numerics.scalar.function import SCALAR_FUNCTIONS, ScalarFunction
from qglow.numerics.scalar.half import widened_bfloat16, widened_float16
from qglow.numerics.scalar.polynomials import expm1, power
from tests.compilers import c_compiler

PATTERNS = np.arange(0, 2**32, 65551, dtype=np.uint64).astype(np.uint32)
ENDS = np.array([0, 1, 0x007FFFFF, 0x00800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001], np.uint32)
VALUES = np.concatenate([PATTERNS, ENDS, ENDS | np.uint32(2**31)]).view(np.float32)
DECLARED: list[ScalarFunction] = [
    *(cls() for cls in SCALAR_FUNCTIONS.values()),
    *(Elu(1.5), LeakyRelu(-0.3), HardSigmoid(0.3, 0.1), Swish(1.5), Gelu("tanh"), RoundTo("bfloat16")),
    *(PowerOf(exponent) for exponent in (2.0, 3.0, 0.25, 0.5, 0.75, -1.0, -3.0, 1.7)),
]
UNARY: list[Callable[[Real], Real]] = [
    *(function.real for function in DECLARED),
    *(expm1, lambda x: clip(x, -0.5, 6.0), lambda x: clip(x, lo=0.0)),
]
BINARY: list[Callable[[Real, Real], Real]] = [power, prelu, larger, smaller]


def assert_same_bits(found: Array, expected: Array, what: object) -> None:
    """NaN may differ in sign and payload, which C leaves to compilers."""
    same = (found.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(found) & np.isnan(expected))
    assert np.all(same), f"{what}: {np.count_nonzero(~same)} differ"


@pytest.fixture(scope="module", params=["-O0", "-O2"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Every meaning as a loop over arrays, compiled without the mathematical library."""
    compiler, source = c_compiler(), [PREAMBLE]
    for index, meaning in enumerate(UNARY):
        source.append(c_function(f"unary{index}", meaning) + _loop(f"unary{index}", ("x",)))
    for index, binary in enumerate(BINARY):
        source.append(c_function(f"binary{index}", binary, 2) + _loop(f"binary{index}", ("x", "y")))
    folder: Path = tmp_path_factory.mktemp("c")
    (folder / "scalar.c").write_text("\n".join(source))
    strict = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-nostdlib")
    command = [compiler, *C_FLAGS, *strict, request.param, "-shared", "-fPIC", "scalar.c", "-o", "scalar.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "scalar.so"))


def _loop(name: str, operands: tuple[str, ...]) -> str:
    parameters = ", ".join(f"const float *{operand}" for operand in operands)
    values = ", ".join(f"{operand}[i]" for operand in operands)
    return (
        f"void all_{name}({parameters}, float *to, int64_t count) {{\n"
        f"    for (int64_t i = 0; i < count; ++i) to[i] = {name}({values});\n}}\n"
    )


def run_c(library: ctypes.CDLL, name: str, *operands: Array) -> Array:
    found = np.empty_like(operands[0])
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (*operands, found)]
    getattr(library, f"all_{name}")(*pointers, ctypes.c_int64(found.size))
    return found


def test_c_gives_the_bits_of_numpy(library: ctypes.CDLL) -> None:
    for index, meaning in enumerate(UNARY):
        assert_same_bits(run_c(library, f"unary{index}", VALUES), evaluate(meaning, VALUES), index)


def test_c_of_two_operands_gives_the_bits_of_numpy(library: ctypes.CDLL) -> None:
    y = np.random.default_rng(4).permutation(VALUES)
    wholes = np.resize(np.array([2, -3, 0.5, 8388609.0, 1e9, 0, np.inf], np.float32), VALUES.size)
    for index, meaning in enumerate(BINARY):
        for other in (y, wholes):
            found = run_c(library, f"binary{index}", VALUES, other)
            assert_same_bits(found, evaluate(meaning, VALUES, other), index)


def test_c_text_states_every_operation_once() -> None:
    text = c_function("cube", PowerOf(3.0).real)
    assert text == (
        "static inline float cube(float x0) {\n"
        "    const float v0 = x0 * x0;\n"
        "    const float v1 = v0 * x0;\n"
        "    return v1;\n"
        "}\n"
    )


@pytest.mark.parametrize(
    ("element", "meaning"), [("float16", widened_float16), ("bfloat16", widened_bfloat16)]
)
def test_numbers_of_16_bits_are_widened_as_storage_is(element: str, meaning: Callable[[Int], Real]) -> None:
    every = np.arange(2**16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        found = meaning(Int(ArrayAlgebra(), every.astype(np.int32))).value
    stored = every.view(store(VALUES[:1], element).dtype)
    assert_same_bits(found, widen(stored), element)


def test_results_have_the_shape_of_the_operands() -> None:
    x = np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 3, 4)
    for meaning in UNARY:
        assert evaluate(meaning, x).shape == x.shape and evaluate(meaning, x).dtype == np.float32
    assert evaluate(prelu, x, x[0, :, :1]).shape == x.shape
