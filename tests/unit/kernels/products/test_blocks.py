"""Products by weights in blocks: what is fetched early, and what tiles of many rows begin with."""

from __future__ import annotations

import re

import numpy as np
import pytest

from qglow.codegen.compiler import emit_assembly, emit_llvm_text
from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.passes import optimize
from qglow.instructions.program import Program
from qglow.kernels.emit.kernel import parse_kernel
from qglow.kernels.products.blocks import exponent, power
from qglow.kernels.products.integer_blocks import IntegerBlockProduct
from qglow.kernels.products.unpacked_blocks import UnpackedBlockProduct
from qglow.lowering import lower
from qglow.targets.x86.isas import isa_by_name
from tests.runtimes import NATIVE_ISAS, machine, plan_apart, prepare
from tests.suite.blocks import product

DEPTH = 768


def prepared(
    rows: int, columns: int, integers: bool, zeros: str = "whole", isa: str = NATIVE_ISAS[-1]
) -> Program:
    """A product by weights of 4 bits in blocks of 32, with kernels selected."""
    problem = product((rows, DEPTH), columns, 4, 32, zeros, False, integers)(np.random.default_rng(0))
    program = lower(problem.graph)
    optimize(program)
    chosen = prepare(program, isa)
    plan_apart(chosen)
    return chosen


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("rows", [1, 9])
def test_words_are_fetched_early_where_there_are_many(rows: int, integers: bool) -> None:
    """The processor does not prefetch across pages, so that every page would be waited for."""
    few, many = (
        emit_llvm_text(prepared(rows, columns, integers), machine(NATIVE_ISAS[-1])).count("llvm.prefetch")
        for columns in (96, 320)
    )
    assert few == 0
    assert many > 0


@pytest.mark.parametrize(("rows", "held"), [(1, False), (2, True)])
def test_sums_of_weights_are_constants_of_several_rows(rows: int, held: bool) -> None:
    """One row would have to read them. Signed activations are multiplied as they are, without any."""
    target, program = machine(NATIVE_ISAS[-1]), prepared(rows, 96, integers=True)
    (found,) = [one for one in program.code if isinstance(one.operation, BlockGemm)]
    kernel = IntegerBlockProduct(rows, 2)
    assert ("sums" in kernel.constants(found, target)) is (held and target.activation_bias != 0)


@pytest.mark.parametrize(
    ("rows", "name"), [(1, "blockproduct"), (4, "blockproduct"), (64, "unpackedblockproduct")]
)
def test_codes_are_unpacked_once_for_many_rows(rows: int, name: str) -> None:
    (found,) = [one for one in prepared(rows, 96, False).code if isinstance(one.operation, BlockGemm)]
    assert found.kernel is not None and found.kernel.split("{")[0] == name


def test_products_of_few_and_many_rows_pack_weights_alike() -> None:
    target, packed = machine(NATIVE_ISAS[-1]), []
    one, many = (
        next(x for x in prepared(rows, 96, False).code if isinstance(x.operation, BlockGemm))
        for rows in (1, 64)
    )
    for instruction in (one, many):
        assert instruction.kernel is not None
        packed.append(parse_kernel(instruction.kernel, target).constants(one, target))
    first, second = packed
    assert first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("isa", "zeros", "picked"),
    [("avx512vnni", "", True), ("avx512vnni", "whole", False), ("avx2", "", False)],
)
def test_floats_of_codes_without_zero_points_are_picked(isa: str, zeros: str, picked: bool) -> None:
    """One instruction fewer for each code, where a register holds 16 floats."""
    text = emit_assembly(prepared(1, 96, False, zeros, isa), isa_by_name(isa))
    assert bool(re.search(r"vperm(ps|d)\b", text)) == picked


def test_codes_are_floats_under_an_exponent() -> None:
    """A code at any of these places, less the offset of the place, is the code."""
    for place in range(0, 20, 4):
        words = np.arange(16, dtype=np.uint32) << np.uint32(place) | np.uint32(exponent(place))
        assert np.array_equal(words.view(np.float32) - np.float32(power(place)), np.arange(16))


@pytest.mark.parametrize(
    ("rows", "depth", "copied"), [(60, DEPTH, False), (60, 1024, True), (4, 1024, False)]
)
def test_rows_are_copied_where_they_share_sets_of_the_cache(rows: int, depth: int, copied: bool) -> None:
    """Copies lie a line of the cache farther apart, so that no two of a tile are in one set."""
    problem = product((rows, depth), 96, 4, 32, "whole", False, False)(np.random.default_rng(0))
    program = lower(problem.graph)
    optimize(program)
    (found,) = [one for one in program.code if isinstance(one.operation, BlockGemm)]
    kernel = UnpackedBlockProduct(4, 2)
    assert kernel.scratch_bytes(found) == (rows * (4 * depth + 64) if copied else 0)


def test_tiles_of_many_rows_have_two_columns_of_sums() -> None:
    (found,) = [one for one in prepared(60, 96, False).code if isinstance(one.operation, BlockGemm)]
    assert found.kernel is not None
    kernel = parse_kernel(found.kernel, machine(NATIVE_ISAS[-1]))
    assert isinstance(kernel, UnpackedBlockProduct) and 6 <= kernel.rows <= 10 and kernel.vectors == 2


def test_panels_with_few_columns_use_the_same_memory_for_weights() -> None:
    """Stacks of threads may be small, so that the last panel has none of its own."""
    text = emit_llvm_text(prepared(60, 200, False), machine(NATIVE_ISAS[-1]))
    assert len([line for line in text.splitlines() if "alloca [" in line and "x i8]" in line]) == 1
