"""Wide tiles, and the forms for targets that do not interleave bytes, give the interpreter's bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.passes import optimize
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.kernels.emit.builder import I32, Builder, Value, vec
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.emit.tiles import Tile, lane_products, row_products
from qglow.lowering import lower
from qglow.lowering.backend import Backend
from tests import runtimes
from tests.portable_target import PORTABLE
from tests.test_runtimes import MAKERS, draw


def products(e: Builder, lhs: Value, rhs: Value) -> Value:
    wide = vec(I32, lhs.type.count)
    return e.b.mul(e.b.sext(lhs, wide), e.b.sext(rhs, wide))


def summed(e: Builder, values: Value, lanes: Sequence[int]) -> Value:
    return e.call(f"llvm.vector.reduce.add.v{len(lanes)}i32", I32, [e.shuffle(values, None, lanes)])


def across(e: Builder, total: Value, lhs: Value, rhs: Value) -> Value:
    return e.b.add(total, summed(e, products(e, lhs, rhs), range(16)))


def dot(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    found = products(e, lhs, rhs)
    for lane in range(sums.type.count):
        group = range(4 * lane, 4 * lane + 4)
        sums = e.insert(sums, e.b.add(e.extract(sums, lane), summed(e, found, group)), lane)
    return sums


def matrix(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    halves = [[e.shuffle(side, None, range(first, first + 8)) for first in (0, 8)] for side in (lhs, rhs)]
    for lane in range(4):
        found = summed(e, products(e, halves[0][lane // 2], halves[1][lane % 2]), range(8))
        sums = e.insert(sums, e.b.add(e.extract(sums, lane), found), lane)
    return sums


WIDE = (
    Tile("across", 1, 1, 16, "s8", "s8", lane_products, across),
    Tile("matrix", 2, 2, 8, "s8", "s8", row_products, matrix),
    Tile("element", 1, 4, 4, "s8", "s8", lane_products, dot, by_element=True),
)
DEAR = replace(PORTABLE.model, pair_cycles=1e6, chain_cycles=1.0)
"""Costs by which no usual tile is chosen."""
MOST = 36
"""Problems of one test: families have up to 63."""
NARROW = replace(PORTABLE, interleaves=False, loop_unroll=1)


def program_of(maker: str, target: VectorTarget) -> tuple[Program, dict[str, np.ndarray]]:
    problem = draw(maker, dict(MAKERS)[maker])
    program = lower(problem.graph, Backend(target.name))
    optimize(program)
    return program, dict(problem.inputs)


def check(maker: str, target: VectorTarget, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Run a problem for a target on the host, against the interpreter; return the program with kernels."""
    monkeypatch.setattr(runtimes, "PORTABLE", target)
    program, inputs = program_of(maker, target)
    prepared = runtimes.prepare(program, target.name)
    plan_memory(prepared)
    found = runtimes.execute(prepared, target.name, inputs, {}).outputs
    with np.errstate(all="ignore"):
        wanted = ArenaInterpreter(prepared).run(inputs)
    for name, array in wanted.items():
        if array.dtype != np.float32:
            assert np.array_equal(found[name], array), name
    return prepared


def makers(*families: str) -> list[str]:
    """Names of the first problems of each family."""
    names = [name for name, _ in MAKERS]
    return [name for family in families for name in names if name.startswith(f"{family}-")][:MOST]


@pytest.mark.parametrize("tile", WIDE, ids=lambda tile: tile.name)
def test_wide_tiles_give_the_bits_of_the_interpreter(tile: Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(PORTABLE, tiles=(tile, *PORTABLE.tiles), registers=32, model=DEAR)
    chosen = 0
    for maker in makers("conv", "linear"):
        program = check(maker, target, monkeypatch)
        chosen += sum(tile.name in instruction.kernel for instruction in program.code)
    assert chosen > 10


def test_narrow_forms_give_the_bits_of_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    for maker in (*makers("conv")[::2], *makers("pool")[::2], *makers("elementwise")[::3]):
        check(maker, NARROW, monkeypatch)


def test_halves_of_words_give_the_bits_of_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    class Halves(type(NARROW)):  # type: ignore[misc]
        multiplies_halves = True

    fields = {name: getattr(NARROW, name) for name in NARROW.__dataclass_fields__}
    for maker in makers("conv")[::3]:
        check(maker, Halves(**fields), monkeypatch)


def test_references() -> None:
    lhs, rhs = np.arange(16).reshape(2, 8), np.arange(16, 32).reshape(2, 8)
    assert np.array_equal(row_products(np.ones((2, 2), int), lhs, rhs), 1 + lhs @ rhs.T)
