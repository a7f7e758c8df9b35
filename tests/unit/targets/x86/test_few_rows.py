"""Products of few rows on AVX2 by weights of bytes: exact, and chosen where memory bounds them."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import ElementType, TensorType
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.linear import FullyConnected
from qglow.kernels.selection.choice import best_kernel
from qglow.targets.x86.few_rows import NarrowFullyConnected
from qglow.targets.x86.isas import AVX2
from qglow.targets.x86.listed import ListedFullyConnected
from qglow.targets.x86.machine import FAR_WEIGHTS, FEW_ROWS
from tests.runtimes import HOST_ISAS
from tests.unit.kernels.products.test_linear import check_int8_product, int8_type

DEPTH = 1030
"""Not a multiple of four."""
COLUMNS = 1037


@pytest.mark.skipif("avx2" not in HOST_ISAS, reason="the host has no AVX2")
@pytest.mark.parametrize("rows", [1, 3, FEW_ROWS])
@pytest.mark.parametrize("zero_points", [(3, -5), (-128, 127), (127, -128)])
def test_bits_are_the_same(rows: int, zero_points: tuple[int, int]) -> None:
    assert DEPTH * COLUMNS >= FAR_WEIGHTS
    check_int8_product((rows, DEPTH, COLUMNS), zero_points, ["avx2"])


@pytest.mark.parametrize(
    "rows, depth, is_narrow",
    [(1, 4096, True), (FEW_ROWS, 4096, True), (FEW_ROWS + 1, 4096, False), (1, 512, False)],
)
def test_few_rows_by_many_weights_are_narrow(rows: int, depth: int, is_narrow: bool) -> None:
    weights = np.random.default_rng(0).normal(0, 25, (depth, 512)).clip(-127, 127).astype(np.int8)
    builder = ProgramBuilder("linear")
    src = builder.placeholder("src", int8_type((rows, depth), 3))
    dest = builder.placeholder("dest", TensorType(ElementType.INT32, (rows, 512)))
    builder.emit("op", FullyConnected(), dest, src, builder.constant("filter", weights))
    [instruction] = builder.finish().code
    expected = NarrowFullyConnected if is_narrow else ListedFullyConnected
    assert isinstance(best_kernel(instruction, AVX2), expected)
