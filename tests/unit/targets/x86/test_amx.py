"""AMX kernels: bit for bit by emulation, and by the instructions of real code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from qglow.codegen.compiler import emit_assembly
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.passes import optimize
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.kernels.emit.kernel import FACTORIES
from qglow.kernels.products.one_row_blocks import one_row_products
from qglow.kernels.selection.choice import best_kernel
from qglow.kernels.tiled.geometry import Axis, Geometry, Runs
from qglow.lowering import lower
from qglow.targets.x86 import amx_kernels
from qglow.targets.x86.amx_walk import plan_walk
from qglow.targets.x86.isas import host_isas, isa_by_name
from tests.runtimes import assert_same_bits, prepare
from tests.suite.blocks import INTEGER_SIZES, extremes, product
from tests.unit.kernels.convolution.test_conv import FEW, STEM, Case, build, cases, check_int8
from tests.unit.kernels.products.test_linear import SHAPES, check_int8_product, int8_type

EMULATED = "amx-emulated"
needs_emulation = pytest.mark.skipif(
    isa_by_name(EMULATED) not in host_isas(emulated=True),
    reason="the host cannot emulate AMX",
)
TILED = [EMULATED, *(["amx"] if isa_by_name("amx") in host_isas() else [])]
DEEP = Case((1, 14, 14, 70), 100, (3, 3), pads=(1, 1, 1, 1))


@contextmanager
def only_tiles() -> Iterator[None]:
    """No vector kernels, whatever the estimated cost."""
    saved = dict(FACTORIES)
    FACTORIES["convolution"], FACTORIES["fullyconnected"] = [], []
    # One row has a kernel of its own on all processors.
    FACTORIES["blockgemm"] = [one_row_products]
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


def _product(rows: int, depth: int, columns: int) -> Program:
    """A product of int8 rows with weights that are all 1."""
    builder = ProgramBuilder("product")
    src, dest = (
        builder.placeholder(name, int8_type((rows, size), 0))
        for name, size in (("src", depth), ("dest", columns))
    )
    filters = builder.constant("filter", np.ones((depth, columns), np.int8))
    bias = builder.constant("bias", np.zeros(columns, np.int32))
    factors = builder.constant("multiplier", np.full(columns, 0.01, np.float32))
    builder.emit("op", FullyConnected(), dest, src, filters, bias, factors)
    return builder.finish()


@needs_emulation
@pytest.mark.parametrize("isa", TILED)
@pytest.mark.parametrize(("rows", "copied"), [(33, True), (50, True), (32, False)])
def test_products_of_copied_rows(isa: str, rows: int, copied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows a multiple of 4 KiB long are spread, with the same bits."""
    monkeypatch.setattr(amx_kernels, "COPIED_COLUMNS", 40)
    with only_tiles():
        prepared = prepare(_product(rows, 4096, 40), isa)
        [scratch] = (x.optional("scratch") for x in prepared.code if isinstance(x.operation, FullyConnected))
        assert (scratch is not None and scratch.type.size == rows * (4096 + 64)) == copied
        check_int8_product((rows, 4096, 40), (3, -5), [isa])


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


BLOCKS = [
    *(size for size in INTEGER_SIZES if size[0] != (40,) and size[3] % 80),
    ((16, 64), 16, 4, 32, "whole", False),
    ((17, 333), 40, 4, 128, "whole", True),
    ((40, 400), 70, 8, 128, "whole", False),
    ((31, 130), 33, 8, 64, "whole", True),
    ((15, 700), 50, 8, 192, "", False),
    ((18, 97), 20, 2, 48, "whole", False),
    ((32, 2300), 33, 4, 64, "", False),
    ((3, 2080), 40, 8, 32, "whole", True),
]
"""Products by weights in blocks: rows, columns, bits, block, zero points and whether there is a bias."""


@needs_emulation
@pytest.mark.parametrize("isa", TILED)
@pytest.mark.parametrize("size", BLOCKS, ids=str)
def test_products_by_blocks(isa: str, size: tuple[tuple[int, ...], int, int, int, str, bool]) -> None:
    """Those of one row have another kernel."""
    problem = product(*size, integers=True)(np.random.default_rng(0))
    program = lower(problem.graph)
    optimize(program)
    with only_tiles():
        chosen = prepare(program, isa)
        kernels = [one.kernel for one in chosen.code if isinstance(one.operation, BlockGemm)]
        assert size[0][0] == 1 or str(kernels[0]).startswith("amxblockproduct")
        assert_same_bits(program, problem.inputs, [isa])


@needs_emulation
@pytest.mark.parametrize("isa", TILED)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_extreme_products_by_blocks(isa: str, bits: int) -> None:
    problem = extremes(bits, 18)(np.random.default_rng(0))
    program = lower(problem.graph)
    optimize(program)
    with only_tiles():
        assert_same_bits(program, problem.inputs, [isa])


def test_many_rows_by_blocks_use_tiles_where_they_are_faster() -> None:
    """By estimates: unpacked weights are worth the way of sums through memory from some rows on."""
    found = {}
    for rows in (1, 8, 128):
        problem = product((rows, 1024), 256, 4, 128, "whole", False, integers=True)(np.random.default_rng(0))
        program = lower(problem.graph)
        optimize(program)
        [one] = [x for x in prepare(program, "amx").code if isinstance(x.operation, BlockGemm)]
        found[rows] = str(one.kernel).split("{")[0]
    assert found == {1: "onerowblockproduct", 8: "integerblockproduct", 128: "amxblockproduct"}


@pytest.mark.parametrize(("rows", "lines"), [(1, 32), (16, 0), (128, 8), (2048, 0)])
def test_weights_are_fetched_early(rows: int, lines: int) -> None:
    """A unit of few rows fetches its own, some share those of the next block, many hide what they take."""
    program = _product(rows, 512, 64)
    with only_tiles():
        prepared = prepare(program, "amx")
    plan_memory(prepared)
    assert emit_assembly(prepared, isa_by_name("amx")).count("prefetcht1") == lines
