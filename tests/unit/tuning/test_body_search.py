"""Repair of what is rounded inside of loops."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.profiling.samples import Sample
from qglow.recipe.schema import Recipe
from qglow.tuning.body_search import RoundedInside
from qglow.tuning.costs import multiply_adds, named_multiply_adds
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.repair import repaired
from qglow.tuning.self_check import float_runs
from qglow.tuning.stage import Stage
from tests.unit.tuning.repair_networks import common_mode, level, made, recurrent

LARGE = "Loop_0.body/Add_0"


@pytest.fixture
def kept() -> list[Sample]:
    arrays = np.random.default_rng(3).uniform(0.0, 1.0, (8, 40)).astype(np.float32)
    return [Sample(f"sample {i}", {"x": array}) for i, array in enumerate(arrays)]


def plain_stage(quantizer: Quantizer, kept: list[Sample]) -> Stage:
    return Stage(Recipe(), quantizer, float_runs(quantizer.graph, kept, quantizer.options))


def test_a_rehearsal_has_the_noise_of_regions(kept: list[Sample]) -> None:
    quantizer = made(recurrent(), kept)
    assert abs(plain_stage(quantizer, kept).sqnr_db - level(quantizer, Recipe(), kept)) < 0.1


def test_the_value_at_fault_is_found_and_is_wide(kept: list[Sample]) -> None:
    quantizer = made(recurrent(), kept)
    stage = plain_stage(quantizer, kept)
    assert RoundedInside(stage).mixes()[0][0].int16 == (LARGE,)
    found = repaired(Recipe(), quantizer, kept)
    (repair,) = found.repairs
    assert repair.values == (LARGE,) and repair.what == f"int16 for {LARGE}"
    assert level(quantizer, found.recipe, kept) > level(quantizer, Recipe(), kept) + 25.0


def test_nothing_is_tried_where_regions_cost_little(
    kept: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    quantizer = made(recurrent(), kept)
    stage = plain_stage(quantizer, kept)
    monkeypatch.setattr(Stage, "tried", lambda self, recipe, runs: stage.own.noise_on(runs))
    assert not RoundedInside(stage).mixes()


def test_multiplications_inside_count_in_every_round() -> None:
    work = dict(named_multiply_adds(recurrent()))
    assert work["Loop_0.body/Gemm_0"] == 3 * 40 * 40 and work["Loop_0"] == 0.0
    assert multiply_adds(recurrent()) == 2 * 3 * 40 * 40
    assert not RoundedInside(plain_stage(made(common_mode(), offsets()), offsets()))


def offsets() -> list[Sample]:
    arrays = np.random.default_rng(3).uniform(0.0, 1.0, (4, 400)).astype(np.float32)
    return [Sample(f"sample {i}", {"x": array}) for i, array in enumerate(arrays)]
