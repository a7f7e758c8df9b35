"""localresponse gives the bits of its numpy reference, at both ends of rows and between them."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import Array, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.normalization import LocalResponse
from tests.runtimes import assert_same_bits


def check(operation: LocalResponse, values: Array) -> None:
    """Compiled code against the interpreter."""
    builder = ProgramBuilder("localresponse")
    kind = float_type(*values.shape)
    src, dest = builder.placeholder("src", kind), builder.placeholder("dest", kind)
    builder.emit("op", operation, dest, src)
    assert_same_bits(builder.finish(), {"src": values})


@pytest.mark.parametrize("length", [1, 15, 33, 131])
@pytest.mark.parametrize("size", [1, 5, 16, 40])
def test_rows_and_windows(length: int, size: int) -> None:
    values = np.random.default_rng(length).standard_normal((3, length)).astype(np.float32)
    check(LocalResponse(size, 0.4, 0.75, 1.0), values)


@pytest.mark.parametrize("beta", [0.25, 0.5, 1.0, 2.0, 0.7, -0.5])
def test_powers(beta: float) -> None:
    values = np.random.default_rng(1).standard_normal((2, 3, 4, 40)).astype(np.float32)
    check(LocalResponse(5, 2.0, beta, 0.5), values)


def test_infinities_nan_and_zeros() -> None:
    values = np.ones((7, 70), np.float32)
    values[0, 3], values[1, 40], values[2, 69] = np.inf, np.nan, -np.inf
    values[3], values[4] = 0.0, -0.0
    values[5], values[6] = 1e-30, 3e30
    check(LocalResponse(5, 1.0, 0.75, 0.0), values)


def test_an_empty_tensor() -> None:
    check(LocalResponse(3, 1.0, 0.75, 1.0), np.zeros((0, 5), np.float32))
