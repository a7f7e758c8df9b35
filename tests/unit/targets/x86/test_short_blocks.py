"""Products by weights in blocks on AVX2 in sums of 16 bits: how many steps fit, and where they are chosen."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.passes import optimize
from qglow.kernels.emit.kernel import parse_kernel
from qglow.lowering import lower
from qglow.targets.x86.isas import AVX2
from qglow.targets.x86.short_blocks import ShortBlockProduct, chunk_steps
from tests.runtimes import prepare
from tests.suite.blocks import product


@pytest.mark.parametrize("bits, steps", [(2, 32), (4, 8), (8, 8)])
def test_sums_of_a_chunk_fit_and_those_of_two_do_not(bits: int, steps: int) -> None:
    """A step adds two products of -128 by the largest weight to each sum."""
    largest = min((1 << bits) - 1, 15)
    assert chunk_steps(BlockGemm(bits=bits, block=256)) == steps
    assert 128 * largest * 2 * steps < 1 << 15 <= 128 * largest * 2 * steps * 2


@pytest.mark.parametrize(
    "bits, rows, is_short", [(4, 1, False), (4, 4, True), (4, 64, True), (8, 4, False), (8, 64, True)]
)
def test_several_rows_have_short_sums(bits: int, rows: int, is_short: bool) -> None:
    problem = product((rows, 1024), 96, bits, 32, "whole", False, True)(np.random.default_rng(0))
    program = lower(problem.graph)
    optimize(program)
    (found,) = [one for one in prepare(program, "avx2").code if isinstance(one.operation, BlockGemm)]
    assert found.kernel is not None
    assert isinstance(parse_kernel(found.kernel, AVX2), ShortBlockProduct) is is_short


def test_sums_begin_with_what_activations_have_too_much() -> None:
    """Without zero points the middle of the codes is subtracted; a sum is over two columns' neighbours."""
    problem = product((8, 64), 16, 4, 32, "", False, True)(np.random.default_rng(0))
    program = lower(problem.graph)
    optimize(program)
    (found,) = [one for one in prepare(program, "avx2").code if isinstance(one.operation, BlockGemm)]
    packed = found.operand("filter").data
    assert packed is not None
    codes = np.stack([packed & 15, packed >> 4], axis=1).reshape(64, 16).astype(np.int32) - 8
    pairs = codes.reshape(2, 8, 2, 2, 16).sum(axis=(1, 3))
    starts = ShortBlockProduct(4, 2).constants(found, AVX2)["starts0"]
    assert np.array_equal(starts.view(np.int16).reshape(2, 16, 2), (-128 * pairs).transpose(0, 2, 1))
