"""Products by lists of steps: which steps are bytes in pairs, and that no sum of theirs saturates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.core.types import Array
from qglow.instructions.program import Program
from qglow.kernels.selection.choice import best_kernel, candidates
from qglow.kernels.selection.select import select_kernels
from qglow.kernels.tiled.geometry import Axis, Geometry, Runs
from qglow.targets.x86.isas import AVX2
from qglow.targets.x86.listed import ListedConvolution, ListedFullyConnected, bytes_tile
from qglow.targets.x86.step_kinds import divide_steps, pair_loads
from qglow.targets.x86.step_lists import (
    ALIGNMENT,
    ENTRY_BYTES,
    FLIPPED,
    JOINED,
    LENGTH_FIELD,
    LIST_FIELDS,
    PLACES,
    PackedLists,
    pack_lists,
    turn_bytes,
)
from qglow.targets.x86.step_partners import MOST
from tests.fuzzing import examples
from tests.runtimes import HOST_ISAS
from tests.unit.kernels.convolution.test_conv import Case, build, check_int8

WIDE = Case((1, 7, 7, 64), 64, (1, 1), to_float=True)
"""Float results show every unit of a sum."""


def convolution(case: Case) -> tuple[Program, list[object]]:
    program, _ = build(case, True)
    [instruction] = [i for i in program.code if i.operation.opcode == "convolution"]
    return program, [best_kernel(instruction, AVX2), *candidates(instruction, AVX2)]


def test_a_pair_fits_exactly_where_no_activations_saturate_it() -> None:
    every = np.arange(-128, 128, dtype=np.int8)
    pairs = np.stack(np.meshgrid(every, every), axis=-1)
    wide = pairs.astype(np.int64)
    most = 255 * np.maximum(wide, 0).sum(axis=-1)
    least = 255 * np.minimum(wide, 0).sum(axis=-1)
    exact = (most <= 32767) & (least >= -32768)
    assert np.array_equal(pair_loads(pairs).max(axis=(-2, -1)) <= MOST, exact)


def sums_of_lists(packed: PackedLists, vectors: int, activations: Array) -> Array:
    """Sums [vectors, lanes] of the one block of lists, as AVX2 adds them up; no sum may leave 16 bits."""
    start = int(packed.data[:ENTRY_BYTES].view(np.int64)[0])
    header = packed.data[start : start + LENGTH_FIELD].view(np.int64).reshape(-1, LIST_FIELDS)
    total = packed.lacking.astype(np.int64).reshape(vectors, -1)
    for kind, (turns, places, weights) in enumerate(header):
        size, steps = turn_bytes(bytes_tile(AVX2), vectors)[kind], PLACES[kind]
        at = packed.data[start + places :][: 4 * steps * turns].view(np.int32).reshape(turns, steps)
        parts = packed.data[start + weights :][: size * turns]
        parts = parts.reshape(turns, size // (32 * vectors), vectors, 8, 2, 2)
        for turn in range(turns):
            taken = [activations[place : place + 4].reshape(2, 2) for place in at[turn]]
            for mask in parts[turn, steps:]:
                taken[-1] = taken[-1] ^ mask
            by = parts[turn, :steps].view(np.int8)
            products = [one.astype(np.int64) * two for one, two in zip(taken, by, strict=True)]
            pairs = [product.sum(axis=-1) for product in products]
            added = [pairs[0] + pairs[1]] if kind in (JOINED, FLIPPED) else pairs
            assert all(part.min() >= -(1 << 15) and part.max() < 1 << 15 for part in (*pairs, *added))
            total = total + sum(part.sum(axis=-1) for part in added)
    return total


@given(st.integers(0, 1000), st.integers(1, 40), st.sampled_from([8.0, 25.0, 40.0, 80.0, 300.0]))
@settings(max_examples=examples(60))
def test_lists_add_up_to_the_product_and_no_sum_leaves_16_bits(
    seed: int, steps: int, deviation: float
) -> None:
    random = np.random.default_rng(seed)
    rows = np.clip(np.rint(deviation * random.standard_normal((16, 4 * steps))), -128, 127).astype(np.int8)
    geometry = Geometry(
        (Axis(1, 4 * steps, 16),), Runs(1, 0, 1, 0, 4 * steps), 1, 16, 4 * steps, (0, 0, 0, 0), False
    )
    packed = pack_lists(bytes_tile(AVX2), rows, geometry, 2)
    wide = rows.astype(np.int64)
    for activations in (
        np.full(4 * steps, 255, np.uint8),
        np.zeros(4 * steps, np.uint8),
        np.where(wide[3] > 0, 255, 0).astype(np.uint8),
        random.integers(0, 256, 4 * steps).astype(np.uint8),
        random.choice([0, 255], 4 * steps).astype(np.uint8),
    ):
        assert np.array_equal(sums_of_lists(packed, 2, activations).reshape(-1), wide @ activations)


def test_nearly_all_steps_of_normal_weights_are_joined() -> None:
    normal = np.random.default_rng(2).standard_normal((16, 768))
    block = np.rint(127 * normal / np.abs(normal).max(axis=1, keepdims=True)).astype(np.int8)
    [kinds] = divide_steps(block.reshape(1, 2, 8, 192, 4).swapaxes(2, 3))
    assert len(kinds.flipped) > 120 and len(kinds.masked) < 20 and not len(kinds.split)


@pytest.mark.skipif("avx2" not in HOST_ISAS, reason="the host has no AVX2")
@pytest.mark.parametrize(
    "weights",
    [
        (64, 64),
        (127, 1),
        (-64, -64),
        (-128, 0),
        (127, 2),
        (-128, -1),
        (-1, -128),
        (-128, 127),
        (127, 127),
        (-128, -128),
    ],
)
@pytest.mark.parametrize("activation", [-128, 127])
def test_the_largest_pairs_are_exact(
    weights: tuple[int, int], activation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One step of the pair among steps of zeros, over activations that are all as far from 0 as they can be.
    def constants(case: Case, rng: np.random.Generator) -> list[Array]:
        filters = np.zeros(case.filter_shape, np.int8)
        filters[:, 0, 0, 20:22] = weights
        filters[::2, 0, 0, 40:42] = weights
        filters[1::2, 0, 0, 4:6] = np.right_shift(weights, 1)
        filters[1::2, 0, 0, 8:10] = np.right_shift(weights, 1)
        return [filters, np.zeros(case.filters, np.int32), np.full(case.filters, 1e-3, np.float32)]

    def activations(case: Case, program: Program, quantized: bool) -> Array:
        return np.full(program.buffer("src").type.shape, activation, np.int8)

    monkeypatch.setattr("tests.unit.kernels.convolution.test_conv.int8_constants", constants)
    monkeypatch.setattr("tests.unit.kernels.convolution.test_conv.data", activations)
    assert isinstance(convolution(WIDE)[1][0], ListedConvolution)
    check_int8(WIDE, ["avx2"])


def test_lists_are_chosen_where_most_steps_fit() -> None:
    assert isinstance(convolution(Case((1, 9, 9, 64), 64, deviation=25.0))[1][0], ListedConvolution)
    best, *every = convolution(Case((1, 9, 9, 64), 64, extreme=True))[1]
    assert not isinstance(best, ListedConvolution | ListedFullyConnected)
    assert any(isinstance(kernel, ListedConvolution) for kernel in every)


def test_lists_hold_the_steps_of_their_block() -> None:
    random = np.random.default_rng(5)
    runs = Runs(3, 1000, 1, 0, 72)
    geometry = Geometry((Axis(10, 24, 40),), runs, 2, 40, 48, (0, 0, 0, 0), False)
    rows = np.clip(np.rint(33 * random.standard_normal((80, 216))), -127, 127).astype(np.int8)
    rows[:, :4] = 127  # a step that fits with none
    rows[:, 4:12] = 64  # two that fit alone only
    packed, _ = pack_lists(bytes_tile(AVX2), rows, geometry, 2)
    table = packed[: 10 * ENTRY_BYTES].view(np.int64)
    places = [r * 1000 + 4 * s for r in range(3) for s in range(18)]
    end = 128
    for entry in (0, 2, 4, 5, 7, 9):
        start = entry * ENTRY_BYTES + int(table[entry])
        assert start == end and start % ALIGNMENT == 0
        header = packed[start : start + LENGTH_FIELD + 8].view(np.int64)
        end = start + int(header[-1])
        lists = []
        for number, steps in enumerate(PLACES):
            turns, begin = (int(field) for field in header[LIST_FIELDS * number :][:2])
            lists.append(packed[start + begin : start + begin + 4 * steps * turns].view(np.int32).tolist())
        assert all(lists)
        assert sorted(place for one in lists for place in one) == sorted(places)
    assert end == packed.size


def test_selection_shares_code_of_equal_shapes() -> None:
    program, _ = build(Case((1, 9, 9, 64), 64, deviation=25.0), True)
    select_kernels(program, AVX2)
    [kernel] = [i.kernel for i in program.code if i.operation.opcode == "convolution"]
    assert kernel is not None and kernel.startswith("listedconvolution{")
