"""Ranges compared by what they cost the outputs."""

from __future__ import annotations

import math

import pytest

from qglow.recipe.choices import Calibration
from qglow.tuning.costs import multiply_adds
from qglow.tuning.effort import EFFORTS, rules_for
from qglow.tuning.ranges import RangeChoice, choose_ranges
from tests.unit.profiling.networks import residual_network
from tests.unit.tuning.networks import quantized, runs, sqnr_db

CALIBRATIONS = ("percentile:90", "minmax", "kl")


def test_the_better_range_is_chosen_for_each_value() -> None:
    made = {name: quantized(name) for name in CALIBRATIONS}
    source = made["minmax"].source
    choices = choose_ranges(source, {name: result.graph for name, result in made.items()}, runs(10))
    assert {choice.value for choice in choices} >= {"x", "depthwise", "pointwise", "total"}
    for choice in choices:
        assert set(choice.noise) == set(CALIBRATIONS)
        # Cutting a tenth of the values off costs far more than the wider steps without it.
        assert choice.best != "percentile:90"
        assert choice.noise["percentile:90"] > choice.noise[choice.best]


def test_a_rare_extreme_decides_though_few_runs_are_followed() -> None:
    """One input of 60 is ten times larger, and is most of the error of every range."""
    given = [{"x": run["x"] * (10.0 if index == 37 else 1.0)} for index, run in enumerate(runs(60))]
    made = {name: quantized(name) for name in CALIBRATIONS}
    graphs, source = {name: result.graph for name, result in made.items()}, made["minmax"].source
    told: list[int] = []
    whole = {choice.value: choice for choice in choose_ranges(source, graphs, given)}
    few = {choice.value: choice for choice in choose_ranges(source, graphs, given, None, told.append, 9)}
    assert sum(told) == 2 * len(given) and few.keys() == whole.keys()
    assert [few[name].best for name in few] == [whole[name].best for name in whole]
    for name, choice in few.items():
        for calibration, noise in choice.noise.items():
            assert noise == pytest.approx(whole[name].noise[calibration], rel=0.5)


def test_ranges_that_are_alike_are_no_choice() -> None:
    graph = quantized("minmax")
    assert choose_ranges(graph.source, {"a": graph.graph, "b": graph.graph}, runs(2)) == []


def test_of_equal_ranges_the_first_is_best() -> None:
    assert RangeChoice("v", {"kl": 0.5, "minmax": 0.5, "mse": 0.6}).best == "kl"


def test_rules_name_values_that_leave_the_calibration_of_the_recipe() -> None:
    choices = [
        RangeChoice("a.b", {"kl": 1.0, "minmax": 0.5}),
        RangeChoice("c", {"kl": 0.1, "minmax": 0.5}),
        RangeChoice("d", {"kl": 1.0, "minmax": 0.5}),
        RangeChoice("e", {"kl": 1.0, "percentile:99.9": 0.5}),
    ]
    rules = rules_for(choices, Calibration.parse("kl"))
    assert [str(rule.calibration) for rule in rules] == ["minmax", "percentile:99.9"]
    fits = [[name for name in ("a.b", "axb", "c", "d", "e") if rule.match.fits_name(name)] for rule in rules]
    assert fits == [["a.b", "d"], ["e"]]


def test_what_is_chosen_is_better_than_either_whole() -> None:
    """On the inputs that it was chosen by; minmax and a cut of too much, each for all values."""
    given = runs(10)
    worst = quantized("percentile:90")
    assert sqnr_db(worst.source, worst.graph, given) < sqnr_db(worst.source, quantized().graph, given) - 3


@pytest.mark.parametrize("effort", sorted(EFFORTS))
def test_runs_keep_to_the_work_that_an_effort_allows(effort: str) -> None:
    chosen, graph = EFFORTS[effort], residual_network()
    assert multiply_adds(graph) == 36 * 8 * 27 + 36 * 8 * 9 + 36 * 8 * 8 + 4 * 8
    assert chosen.runs(graph, 5, 10) == 10
    many = 10**9
    found = chosen.runs(graph, 5, many)
    assert found == chosen.most
    assert chosen.runs(graph, 10**6, many) * multiply_adds(graph) * 10**6 * 7 <= chosen.multiply_adds
    assert chosen.runs(graph, many, many) == chosen.fewest
    assert not math.isinf(found)
