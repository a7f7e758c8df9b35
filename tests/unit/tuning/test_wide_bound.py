"""What wide nodes can win at best is known before anything is quantized with them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from qglow.recipe.schema import Recipe
from qglow.tuning.mix import Mix, mix_rules
from qglow.tuning.self_check import float_runs
from qglow.tuning.stage import LIKELY_DB, Stage
from qglow.tuning.wide_bound import most_level
from qglow.tuning.wide_search import GAIN_DB, WideSearch
from tests.unit.tuning.repair_networks import common_mode, hidden_common_mode, made, offsets


def stages(mix: Mix) -> tuple[Stage, Stage]:
    """A stage in int8, and one with the mix."""
    kept = offsets(8)
    quantizer = made(hidden_common_mode(4, 30.0), kept)
    plain = Stage(Recipe(), quantizer, float_runs(quantizer.graph, kept, quantizer.options))
    rules = tuple(mix_rules(mix))
    return plain, Stage(replace(plain.recipe, rules=rules), quantizer, plain.runs)


def node_of(stage: Stage, value: str) -> str:
    return next(node.name for node in stage.result.graph.nodes if node.output.name.startswith(value))


@pytest.mark.parametrize("precision", ["float", "int16"])
def test_the_bound_is_no_less_than_what_is_won(precision: str) -> None:
    plain, _ = stages(Mix())
    names = tuple(node_of(plain, value) for value in ("large", "small"))
    mix = Mix(keep_float=names) if precision == "float" else Mix(int16=names)
    _, wide = stages(mix)
    assert wide.glance > plain.glance + 3.0
    assert most_level(plain, mix) > wide.glance - 0.5


def test_nodes_whose_rounding_costs_nothing_have_nothing_to_win_and_are_not_made() -> None:
    plain, _ = stages(Mix())
    mix = Mix(keep_float=(node_of(plain, "mul0"),))
    assert abs(most_level(plain, mix) - plain.glance) < GAIN_DB / 2

    def fail(recipe: Recipe) -> Stage:
        raise AssertionError("a stage was made")

    search = WideSearch(plain, fail)
    assert search._tried([mix])  # larger ones may win
    assert search.best is plain and not search.mixed


def test_an_int16_value_that_only_products_read_wins_nothing() -> None:
    kept = offsets(8)
    quantizer = made(common_mode(), kept)
    plain = Stage(Recipe(), quantizer, float_runs(quantizer.graph, kept, quantizer.options))
    first, second = (node_of(plain, value) for value in ("h", "y"))
    assert most_level(plain, Mix(int16=(first, second))) > plain.glance + 10.0
    assert most_level(plain, Mix(int16=(first,))) < plain.glance + LIKELY_DB


def test_a_form_that_stayed_far_below_its_bound_is_expected_to_do_so_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, _ = stages(Mix())
    large, small = (node_of(plain, value) for value in ("large", "small"))
    asked: list[Recipe] = []

    def made_again(recipe: Recipe) -> Stage:
        asked.append(recipe)
        return plain  # which wins nothing

    for broken, expected in ((0.0, 2), (plain.sqnr_db + 1.0, 3)):
        asked.clear()
        monkeypatch.setattr("qglow.tuning.wide_search.BROKEN_DB", broken)
        search = WideSearch(plain, made_again)
        monkeypatch.setattr("qglow.tuning.wide_search.most_level", lambda stage, mix: stage.glance + 20.0)
        for mix in (Mix((large,)), Mix((large, small)), Mix((), (large, small))):
            assert search._tried([mix])
        assert len(asked) == expected  # float, then int16, which nothing is known of


def test_nodes_of_regions_have_no_bound() -> None:
    plain, _ = stages(Mix())
    assert most_level(plain, Mix(int16=("loop.body/add",))) == math.inf
