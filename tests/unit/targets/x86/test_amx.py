"""AMX kernels: bit for bit by emulation, and by the instructions of real code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given

from qglow.codegen.compiler import emit_assembly
from qglow.instructions.plan import plan_memory
from qglow.kernels.emit.kernel import FACTORIES
from qglow.kernels.selection.choice import best_kernel
from qglow.kernels.tiled.geometry import Axis, Geometry, Runs
from qglow.targets.x86.amx_product import plan_walk
from qglow.targets.x86.isas import host_isas, isa_by_name
from tests.runtimes import prepare
from tests.unit.kernels.convolution.test_conv import FEW, STEM, Case, build, cases, check_int8
from tests.unit.kernels.products.test_linear import SHAPES, check_int8_product

EMULATED = "amx-emulated"
needs_emulation = pytest.mark.skipif(
    isa_by_name(EMULATED) not in host_isas(emulated=True),
    reason="the host cannot emulate AMX",
)
DEEP = Case((1, 14, 14, 70), 100, (3, 3), pads=(1, 1, 1, 1))


@contextmanager
def only_tiles() -> Iterator[None]:
    """No vector kernels, whatever the estimated cost."""
    saved = dict(FACTORIES)
    FACTORIES["convolution"], FACTORIES["fullyconnected"] = [], []
    try:
        yield
    finally:
        FACTORIES.update(saved)


@needs_emulation
@FEW
@given(cases())
def test_random_convolutions(case: Case) -> None:
    with only_tiles():
        check_int8(case, [EMULATED])


@needs_emulation
@pytest.mark.parametrize("width", [1, 7, 14, 16, 17, 31, 33, 56])
def test_rows_of_every_length(width: int) -> None:
    with only_tiles():
        check_int8(Case((1, 3, width, 20), 40, (1, 1), dest_place="slice"), [EMULATED])
        check_int8(Case((2, 3, width, 5), 20, (3, 3), pads=(1, 1, 1, 1)), [EMULATED])


@needs_emulation
@pytest.mark.parametrize("case", [STEM, DEEP, replace(DEEP, spread=1e7, extreme=True)])
def test_layers(case: Case) -> None:
    with only_tiles():
        check_int8(case, [EMULATED])


@needs_emulation
@pytest.mark.parametrize("shape", SHAPES)
def test_products(shape: tuple[int, int, int]) -> None:
    with only_tiles():
        check_int8_product(shape, (3, -5), [EMULATED])


def test_code_for_real_tiles() -> None:
    program, _ = build(DEEP, quantized=True)
    instruction = next(i for i in program.code if i.name == "conv")
    assert best_kernel(instruction, isa_by_name("amx")).name == "amxconvolution"
    prepared = prepare(program, "amx")
    plan_memory(prepared)
    text = emit_assembly(prepared, isa_by_name("amx"))
    wanted = ["ldtilecfg", "tileloadd", "tdpbusd", "tilestored", "tilerelease", "vpackuswb"]
    assert [name for name in wanted if name not in text] == []
    assert "emulated" not in text


@pytest.mark.parametrize("count", range(1, 120))
def test_units_cover_every_pixel_once_or_twice(count: int) -> None:
    geometry = Geometry((Axis(count, 8, 4),), Runs(1, 0, 1, 0, 8), 1, 16, 8, (0, 0, 0, 0), False)
    walk = plan_walk(geometry)
    assert walk.rows <= 16
    seen = set()
    for unit in range(walk.units):
        start = min(unit * walk.step, walk.last)
        for tile in range(walk.tiles):
            first = start + tile * walk.apart
            seen.update(range(first, first + walk.rows))
    assert seen == set(range(count))
