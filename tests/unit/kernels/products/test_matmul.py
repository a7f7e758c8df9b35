"""Products of computed matrices are chains of fused multiply-adds, whatever the block."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.linear import FullyConnected
from qglow.kernels.products.matmul import pieces
from qglow.numerics.fused import gemm_chain
from tests.runtimes import HOST_ISAS, machine, run_compiled


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (9, 5, 17), (13, 20, 70), (3, 64, 32), (2, 0, 5)])
def test_a_computed_filter_is_a_chain_from_the_bias(m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(m)
    x, w, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((m, k), (k, n), (n,)))
    builder = ProgramBuilder("product")
    operands = [
        builder.placeholder(name, float_type(*a.shape)) for name, a in (("x", x), ("w", w), ("b", bias))
    ]
    builder.emit("op", FullyConnected(), builder.placeholder("y", float_type(m, n)), *operands)
    program = builder.finish()
    for isa in HOST_ISAS:
        if not machine(isa).has_fma:
            continue
        found = run_compiled(program, isa, {"x": x, "w": w, "b": bias})["y"]
        assert np.array_equal(found, gemm_chain(x, w, bias)), isa


def test_pieces_cover_a_range_with_few_sizes() -> None:
    assert list(pieces(20, 8)) == [(0, 16, 8), (16, 20, 4)]
    assert list(pieces(48, 32, 16)) == [(0, 32, 32), (32, 48, 16)]
    assert list(pieces(0, 8)) == []
