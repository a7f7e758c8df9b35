"""Products by weights in blocks as processors with dot products of bytes compute them, on one that has none.

The multiplication is emulated by wider ones, so that kernels and their packing are tested on every host with
AVX2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qglow.instructions.passes import optimize
from qglow.kernels.emit.builder import I32, Builder, Value, vec
from qglow.lowering import lower
from qglow.targets.x86.isas import AVX2, AVX_VNNI, VEX_VPDPBUSD
from tests import runtimes
from tests.runtimes import HOST_ISAS
from tests.suite import blocks


def _emulate(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    """vpdpbusd: four products of unsigned and signed bytes of each lane, added in 32 bits."""
    lanes = sums.type.count
    wide = vec(I32, 4 * lanes)
    products = e.b.mul(e.b.zext(lhs, wide), e.b.sext(rhs, wide))
    for place in range(4):
        sums = e.b.add(sums, e.shuffle(products, None, [4 * lane + place for lane in range(lanes)]))
    return sums


EMULATED = replace(
    AVX_VNNI,
    name="avxvnni-emulated",
    features="",
    requires=AVX2.requires,
    tiles=(replace(VEX_VPDPBUSD, emit=_emulate),),
)
INTEGERS = [
    *(blocks.product(*sizes, integers=True) for sizes in blocks.INTEGER_SIZES),
    *(blocks.extremes(bits, rows) for bits in (8, 4, 2) for rows in (1, 19)),
]


@pytest.mark.skipif("avx2" not in HOST_ISAS, reason="the host has no AVX2")
@pytest.mark.parametrize("number", range(len(INTEGERS)))
def test_blocks_by_dot_products_of_bytes(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "NATIVE", [*runtimes.NATIVE, EMULATED])
    problem = INTEGERS[number](np.random.default_rng(number))
    program = lower(problem.graph)
    optimize(program)
    found = runtimes.run_compiled(program, EMULATED.name, problem.inputs)
    wanted = runtimes.run_compiled(program, "avx2", problem.inputs)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name].view(np.int32), array.view(np.int32))
