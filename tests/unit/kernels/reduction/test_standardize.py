"""Rows standardized by their own statistics, on every ISA."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.normalization import Standardize
from tests.runtimes import assert_same_bits

LENGTHS = [1, 15, 16, 37, 64, 130]
OPERATIONS = [
    Standardize(1e-5),
    Standardize(1e-12, divides=True),
    Standardize(1e-6, centres=False),
    Standardize(0.0, centres=False, divides=True),
]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("factors", [(), ("scale",), ("scale", "shift"), ("shift",)], ids=str)
def test_rows_among_them_some_without_numbers(
    operation: Standardize, length: int, factors: tuple[str, ...]
) -> None:
    random = np.random.default_rng(length)
    x = random.normal(size=(9, length)).astype(np.float32)
    x[1], x[2] = 0.0, np.float32(3.25)
    x[3, -1], x[4, 0], x[5, length // 2] = np.nan, np.inf, -np.inf
    x[6], x[7] = x[6] * np.float32(1e-30), x[7] * np.float32(1e25)
    builder = ProgramBuilder("rows")
    src = builder.placeholder("src", float_type(9, length))
    dest = builder.placeholder("dest", float_type(9, length))
    made = {n: builder.constant(n, random.normal(size=length).astype(np.float32)) for n in factors}
    builder.emit("rows", operation, dest, src, made.get("scale"), made.get("shift"))
    assert_same_bits(builder.finish(), {"src": x})
