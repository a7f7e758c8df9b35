"""Tiles fit registers and cover a layer exactly; geometry merges what lies side by side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.tiled.blocking import candidates, choose_blocking, divide
from qglow.kernels.tiled.geometry import Axis, Geometry, Runs, collapse
from qglow.kernels.tiles.tile import select_tile
from qglow.targets.x86.isas import AVX512_VNNI, AVX_VNNI, ISAS


@given(st.integers(1, 300), st.integers(1, 32))
def test_stretches_cover_once_in_two_adjacent_sizes(total: int, limit: int) -> None:
    pieces = divide(total, limit)
    covered = [p.start + i * p.size + k for p in pieces for i in range(p.count) for k in range(p.size)]
    assert covered == list(range(total))
    sizes = sorted(piece.size for piece in pieces)
    assert sizes[-1] <= limit and sizes[-1] - sizes[0] <= 1 and len(pieces) <= 2


@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_accumulators_leave_registers_for_operands(isa: VectorTarget, is_float: bool) -> None:
    axes = (Axis(1, 0, 0), Axis(56, 1, 1), Axis(56, 1, 1))
    geometry = Geometry(axes, Runs(3, 9, 1, 0, 192), 1, 512, 64, (0, 0, 0, 0), False)
    tile = select_tile(isa, is_float)
    found = list(candidates(geometry, tile))
    assert all(b.pixels * b.vectors < isa.registers for b in found)
    assert choose_blocking(geometry, tile) in found


@pytest.mark.parametrize("isa", [AVX_VNNI, AVX512_VNNI], ids=lambda isa: isa.name)
def test_tiles_have_chains_enough_to_keep_products_coming(isa: VectorTarget) -> None:
    # 3 x 3 over 64 channels: two vectors of 512 bits, eight of 256, which four by two would divide evenly.
    axes = (Axis(1, 0, 0), Axis(56, 3712, 3584), Axis(56, 64, 64))
    geometry = Geometry(axes, Runs(3, 3712, 1, 0, 192), 1, 64, 64, (1, 1, 1, 1), False)
    found = choose_blocking(geometry, select_tile(isa, is_float=False))
    assert found.pixels * found.vectors >= 12


@pytest.mark.parametrize(("rows", "pixels"), [(8, 8), (9, 9), (12, 12), (14, 14), (16, 10)])
def test_rows_that_one_tile_holds_are_one_tile(rows: int, pixels: int) -> None:
    """Weights then come from far memory once, and not from the second-level cache again."""
    geometry = Geometry(
        (Axis(rows, 4096, 16384),), Runs(1, 0, 1, 0, 4096), 1, 4096, 4096, (0, 0, 0, 0), False
    )
    found = choose_blocking(geometry, select_tile(AVX512_VNNI, is_float=False))
    assert (found.pixels, found.vectors) == (pixels, 2)


def test_regular_axes_become_one() -> None:
    dense = (Axis(2, 96, 48), Axis(3, 32, 16), Axis(4, 8, 4))
    assert collapse(dense) == (Axis(24, 8, 4),)
    assert collapse((dense[0], Axis(3, 40, 16), dense[2])) == (dense[0], Axis(3, 40, 16), dense[2])
    assert collapse((Axis(1, 5, 5), Axis(1, 7, 7))) == (Axis(1, 0, 0),)


def test_steps_of_runs_round_up() -> None:
    runs = Runs(7, 100, 1, 0, 21)
    assert (runs.steps, runs.total_steps) == (6, 42)
