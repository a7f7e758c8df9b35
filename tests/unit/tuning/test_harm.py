"""Equalization, splitting and bias correction are kept group by group, where they help at the outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qglow.core.types import Array, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add
from qglow.profiling.samples import Sample
from qglow.recipe.loading import parse_recipe
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.runtime.executable import Executable
from qglow.toolchain.artefacts import obtain_executable
from qglow.tuning.harm import BIASES, SCALING, SPLITTING, harmful, leaving_out
from qglow.tuning.rehearsed_noise import RehearsedNoise
from qglow.tuning.repair import repaired
from qglow.tuning.self_check import float_runs
from qglow.tuning.stage import Stage
from tests.unit.tuning.repair_networks import level, made

CHANNELS = 16


class Drawing:
    """A graph over images, with convolutions by name."""

    def __init__(self, name: str) -> None:
        self.builder = GraphBuilder(name)
        self.random = np.random.default_rng(5)
        self.x = self.builder.input("x", float_type(1, 3, 12, 12))

    def conv(
        self, name: str, source: Value, weights: Array, bias: Array | None = None, **how: float
    ) -> Value:
        """A convolution with these weights; `how` has its bounds and groups."""
        filters = self.builder.constant(f"{name}.w", weights.astype(np.float32))
        added = np.zeros(len(weights)) if bias is None else bias
        shift = self.builder.constant(f"{name}.b", added.astype(np.float32))
        return self.builder.node(Conv(**how), source, filters, shift, name=name)  # type: ignore[arg-type]

    def spikes(self, slope: float) -> Value:
        """One channel that is mostly 0, and rarely very large."""
        weights = np.array([slope, 0.0, 0.0]).reshape(1, 3, 1, 1)
        return self.conv("spikes", self.x, weights, np.array([-2.5 * slope]), lo=0.0)


def torn() -> Graph:
    """Two parts: one needs its channels scaled; in the other that makes steps for what is cut off anyway."""
    g = Drawing("torn")
    uneven = np.where(np.arange(CHANNELS) % 4 == 0, 100.0, 1.0).reshape(-1, 1, 1, 1)
    drawn = [g.random.normal(size=(CHANNELS, 3, 1, 1)) for _ in range(2)]
    filters = [g.random.uniform(0.2, 1.0, (CHANNELS, 1, 3, 3)) for _ in range(2)]
    first = g.conv("uneven", g.x, drawn[0] * uneven)
    needs = g.conv("needs", first, filters[0] / uneven, group=CHANNELS)
    far = g.conv("far", g.spikes(300.0), np.geomspace(0.03, 1.0, CHANNELS).reshape(-1, 1, 1, 1))
    rare = g.builder.node(Add(), g.conv("bulk", g.x, drawn[1]), far, name="rare")
    suffers = g.conv("suffers", rare, filters[1], group=CHANNELS, lo=-2.0, hi=2.0)
    return g.builder.finish(needs, suffers)


def shifted() -> Graph:
    """Coarse weights: the bias makes up for the mean of one input; that of the other is of rare values."""
    g = Drawing("shifted")
    coarse = np.full((CHANNELS, 4, 1, 1), 1.4)
    coarse[:, 3] = 127.0
    spread = np.zeros((4, 3, 1, 1))
    spread[np.arange(3), np.arange(3)] = 1.0
    far = g.conv("far", g.spikes(3000.0), np.array([1.0, 1.0, 1.0, 0.0]).reshape(-1, 1, 1, 1))
    rare = g.builder.node(Add(), g.conv("bulk", g.x, spread), far, name="rare")
    suffers = g.conv("suffers", rare, coarse, lo=-2.0, hi=2.0)
    mean = g.conv("mean", g.x, 0.5 * spread, np.array([5.0, 5.0, 5.0, 0.0]))
    needs = g.conv("needs", mean, coarse)
    return g.builder.finish(needs, suffers)


def images(count: int, seed: int = 3) -> list[Sample]:
    drawn = np.random.default_rng(seed).normal(size=(count, 3, 12, 12)).astype(np.float32)
    return [Sample(f"sample {i}", {"x": array}) for i, array in enumerate(drawn)]


def stage_of(graph: Graph, recipe: Recipe, count: int = 16) -> Stage:
    """The rehearsed stage of a recipe."""
    kept = images(count)
    quantizer = made(graph, kept)
    return Stage(recipe, quantizer, float_runs(graph, kept, quantizer.options))


def named(graph: Graph, *values: str) -> set[str]:
    """Names of the nodes that give these values."""
    found = {value.name: value.producer for value in graph.values()}
    producers = [found[name] for name in values]
    return {node.name for node in producers if node is not None}


def test_equalization_that_ruins_one_group_and_helps_another_stays_where_it_helps() -> None:
    graph, kept, fresh = torn(), images(16), images(16, seed=77)
    quantizer = made(graph, kept)
    found = repaired(Recipe(), quantizer, kept)
    [repair] = found.repairs
    assert repair.what.startswith("without equalization and smoothing of 1 of 2 groups of nodes: ")
    assert repair.won_db is not None and repair.won_db > 5.0
    scaled = {name for each in quantizer(found.recipe).corrections for name in each.values}
    assert "uneven" in scaled and not scaled & {"bulk", "far", "rare"}
    whole = level(quantizer, Recipe(), fresh), level(quantizer, Recipe(equalize=False, smooth=False), fresh)
    assert level(quantizer, found.recipe, fresh) > max(whole) + 5.0


def test_what_the_compiled_program_loses_by_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the rehearsal says."""
    kept = images(16)
    quantizer = made(torn(), kept)

    def measured(stage: Stage) -> RehearsedNoise:
        noise = RehearsedNoise()
        noise.even.power["y"], noise.even.noise["y"] = 1.0, 0.9 if stage.recipe.rules else 0.1
        return noise

    monkeypatch.setattr(Stage, "measured", property(measured))
    assert repaired(Recipe(), quantizer, kept).repairs == ()


def test_only_the_program_of_the_last_stage_is_compiled_where_that_is_clearly_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = images(16)
    quantizer = made(torn(), kept)
    compiled: list[Executable] = []

    def counted(*given: object) -> Executable:
        compiled.append(obtain_executable(*given))  # type: ignore[arg-type]
        return compiled[-1]

    monkeypatch.setattr("qglow.tuning.stage.obtain_executable", counted)
    found = repaired(Recipe(), quantizer, kept)
    assert found.repairs and compiled == [found.program]


def test_bias_correction_stays_where_it_helps() -> None:
    graph, kept, fresh = shifted(), images(16), images(16, seed=77)
    quantizer = made(graph, kept)
    plain = Recipe(equalize=False, smooth=False)
    found = repaired(plain, quantizer, kept)
    [repair] = found.repairs
    corrected = {each.node for each in quantizer(found.recipe).corrections}
    assert named(graph, "needs") <= corrected and not named(graph, "suffers") & corrected
    assert named(graph, "suffers") <= set(repair.values)
    whole = level(quantizer, plain, fresh), level(quantizer, replace(plain, correct_bias=False), fresh)
    assert level(quantizer, found.recipe, fresh) > max(whole) + 1.0


@pytest.mark.parametrize(("graph", "recipe"), [(torn(), Recipe()), (shifted(), Recipe(equalize=False))])
def test_the_rules_that_are_found_give_the_same_model_without_samples(graph: Graph, recipe: Recipe) -> None:
    kept = images(16)
    quantizer = made(graph, kept)
    first, second = (repaired(recipe, quantizer, kept).recipe for _ in range(2))
    assert first == second
    again = parse_recipe(first.to_yaml())
    for one, other in zip(
        quantizer(first).graph.constants(), quantizer(again).graph.constants(), strict=True
    ):
        np.testing.assert_array_equal(one.data, other.data)


@pytest.mark.parametrize("budget", [0.0, 0.7])
def test_a_small_budget_ends_the_search(budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(torn(), Recipe())
    without = Stage(SCALING.without(stage.recipe), stage._quantizer, stage._runs, (stage,))
    monkeypatch.setattr("qglow.tuning.harm._BUDGET", budget * stage.cost)
    tried, count = Stage.tried, list[Recipe]()

    def counted(each: Stage, recipe: Recipe, runs: range) -> RehearsedNoise:
        count.append(recipe)
        return tried(each, recipe, runs)

    monkeypatch.setattr(Stage, "tried", counted)
    assert harmful(SCALING, stage, without) == () and not count


def test_where_none_is_better_than_all_what_helps_is_taken_back() -> None:
    stage = stage_of(shifted(), Recipe(equalize=False, smooth=False))
    without = Stage(BIASES.without(stage.recipe), stage._quantizer, stage._runs, (stage,))
    assert without.level > stage.level
    left_out = {group.node for group in harmful(BIASES, stage, without)}
    assert named(stage.result.source, "suffers") <= left_out
    assert not named(stage.result.source, "needs") & left_out


def test_rules_leave_corrections_out_and_the_log_tells_which() -> None:
    graph, kept = torn(), images(8)
    quantizer = made(graph, kept)
    [first, second, *biases] = quantizer(Recipe()).corrections
    assert {each.kind for each in biases} == {"correct_bias"}
    found = quantizer(leaving_out(Recipe(), [second, biases[0]]))
    assert [each for each in found.corrections if each.kind == "equalize"] == [first]
    assert biases[0] not in found.corrections and biases[1] in found.corrections
    told = [entry.what for entry in found.report.log if entry.where == second.node and not entry.applied]
    assert f"rule 1 (name {second.node}) leaves equalize out" in told
    back = Rule(Match(name=".*"), equalize=True, correct_bias=True)
    recipe = leaving_out(Recipe(rules=(back,)), [second, biases[0]])
    assert quantizer(recipe).corrections == quantizer(Recipe()).corrections


def test_a_rule_does_not_ask_for_what_the_recipe_does_not() -> None:
    graph, kept = torn(), images(4)
    rule = Rule(Match(name=".*"), equalize=True, smooth=True, split_channels=True, correct_bias=True)
    found = made(graph, kept)(Recipe(equalize=False, smooth=False, correct_bias=False, rules=(rule,)))
    assert found.corrections == ()


def test_splitting_is_left_out_by_group() -> None:
    graph, kept = split_network(), images(8)
    quantizer = made(graph, kept)
    recipe = Recipe(equalize=False, smooth=False, correct_bias=False, split_channels=0.1)
    both = quantizer(recipe).corrections
    assert [each.kind for each in both] == ["split_channels"] * 2
    found = quantizer(leaving_out(recipe, both[:1]))
    assert found.corrections == both[1:]
    stage = stage_of(graph, recipe)
    without = Stage(SPLITTING.without(recipe), stage._quantizer, stage._runs, (stage,))
    assert without.result.corrections == ()
    assert set(harmful(SPLITTING, stage, without)) < set(both)


def split_network() -> Graph:
    """Two values of which one channel reaches far beyond the others."""
    g = Drawing("split")
    x = g.x
    for name in ("first", "second"):
        weights = 0.3 * g.random.normal(size=(CHANNELS, x.type.shape[1], 1, 1))
        weights[0] *= 12.0
        x = g.conv(name, x, weights, lo=0.0)
    return g.builder.finish(g.conv("y", x, g.random.normal(size=(4, CHANNELS, 1, 1))))
