"""Few nodes in int16 or float, chosen by what their rounding costs the outputs."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.elementwise import Add
from qglow.profiling.samples import Sample
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.report.verdict import BROKEN_DB, GOOD_DB
from qglow.tuning.mix import Mix
from qglow.tuning.repair import FINE_DB, METHODS, repaired
from qglow.tuning.self_check import FloatRuns, float_runs
from qglow.tuning.stage import Stage
from qglow.tuning.wide_search import WideSearch
from qglow.tuning.widening import light_mixes, wide_mixes
from tests.unit.quantization.attention_networks import vision
from tests.unit.tuning.repair_networks import (
    common_mode,
    hidden_common_mode,
    level,
    made,
    offsets,
    rare,
    read_twice,
)


def test_what_is_not_good_by_any_calibration_gets_int16_for_few_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = offsets(8)
    quantizer = made(common_mode(), kept)
    assert BROKEN_DB < level(quantizer, Recipe(), kept) < 10.0
    few = repaired(Recipe(), quantizer, kept)
    assert not any("int16" in repair.what for repair in few.repairs)  # half of the multiplications
    monkeypatch.setattr("qglow.tuning.wide_search.LARGEST_SHARE", 1.0)
    slow = repaired(Recipe(), quantizer, kept)
    assert not any("int16" in repair.what for repair in slow.repairs)  # it would take twice the time
    monkeypatch.setattr("qglow.tuning.wide_search.LONGEST", 100.0)
    found = repaired(Recipe(), quantizer, kept)
    assert found.repairs[-1].values and found.repairs[-1].won_db > 10.0
    assert level(quantizer, found.recipe, kept) > 15.0


@pytest.mark.parametrize(
    ("longest_good", "longest", "steep", "expected"),
    [(100.0, 100.0, 3.0, True), (0.0, 0.0, 3.0, False), (0.0, 100.0, 3.0, True), (0.0, 100.0, 99.0, False)],
)
def test_a_model_that_is_good_but_not_fine_gets_wide_nodes_for_little_time(
    longest_good: float, longest: float, steep: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More time is for what wins more."""
    kept = offsets(8)
    quantizer = made(hidden_common_mode(4, 30.0), kept)
    stage = Stage(Recipe(), quantizer, float_runs(quantizer.graph, kept, quantizer.options))
    assert GOOD_DB < stage.sqnr_db < 30.0
    monkeypatch.setattr("qglow.tuning.wide_search.LONGEST_GOOD", longest_good)
    monkeypatch.setattr("qglow.tuning.wide_search.LONGEST", longest)
    monkeypatch.setattr("qglow.tuning.wide_search.STEEP_DB", steep)
    monkeypatch.setattr("qglow.tuning.wide_search.light_mixes", lambda stage: ())
    found = repaired(Recipe(), quantizer, kept)
    assert any("float" in repair.what or "int16" in repair.what for repair in found.repairs) is expected


def test_what_is_fine_gets_wide_nodes_where_trying_them_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = offsets(8)
    quantizer = made(hidden_common_mode(4, 20.0), kept)
    stage = Stage(Recipe(), quantizer, float_runs(quantizer.graph, kept, quantizer.options))
    assert FINE_DB < stage.sqnr_db < 30.0
    for limit in ("LONGEST_GOOD", "LONGEST"):
        monkeypatch.setattr(f"qglow.tuning.wide_search.{limit}", 100.0)
    assert level(quantizer, repaired(Recipe(), quantizer, kept).recipe, kept) > stage.sqnr_db + 3.0
    monkeypatch.setattr("qglow.tuning.wide_search._TRIALS", 0.0)
    assert not repaired(Recipe(), quantizer, kept).recipe.rules


def test_what_costs_little_beside_the_worst_is_found_once_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rounding of the one common part has a thousand times the noise of that of the other."""
    b = GraphBuilder("two")
    x = b.input("x", float_type(1, 400))
    parts = []
    for name, common in (("first", 3000.0), ("second", 90.0)):
        shift = common * np.ones((1, 400), np.float32)
        there = b.node(Add(), x, b.constant(f"{name}.up", shift), name=name)
        parts.append(b.node(Add(), there, b.constant(f"{name}.down", -shift), name=f"{name}.back"))
    kept = offsets(8)
    quantizer = made(b.finish(b.node(Add(), *parts, name="y")), kept)
    runs = float_runs(quantizer.graph, kept, quantizer.options)
    plain = Stage(Recipe(), quantizer, runs)
    assert plain.sqnr_db < BROKEN_DB
    monkeypatch.setattr("qglow.tuning.wide_search.LARGEST_SHARE", 1.0)
    sizes = list[int]()

    def few(stage: Stage, share: float) -> list[tuple[Mix, ...]]:
        found = wide_mixes(stage, share)[:1]
        sizes.append(len(found))
        return [tuple(mix for mix in found[0] if mix.int16)] if found else []

    monkeypatch.setattr("qglow.tuning.wide_search.wide_mixes", few)
    search = WideSearch(plain, lambda recipe: Stage(recipe, quantizer, runs))
    search.run(60.0)
    assert len(sizes) == 2 and search.best.sqnr_db > 30.0
    assert {"first", "second"} <= {name for name, kind in search.best.parameters.items() if kind.is_wide}


def pictures(count: int) -> list[Sample]:
    """Samples for a network with a stem, a block of attention and a decoder."""
    arrays = np.random.default_rng(4).normal(size=(count, 3, 4, 6)).astype(np.float32)
    return [Sample(f"picture {i}", {"x": array}) for i, array in enumerate(arrays)]


def test_light_nodes_beside_attention_are_tried_in_float_with_and_without_tables() -> None:
    quantizer = made(vision(), pictures(2))
    stage = Stage(Recipe(), quantizer, FloatRuns(0, (), ()))
    every, sums = light_mixes(stage)
    named = {node.output.name: node.name for node in quantizer.graph.nodes}
    assert set(every.keep_float) == {named[name] for name in ("stem.relu", "stem.sum", "decoder.gate")}
    assert set(every.keep_float) - set(sums.keep_float) == {named["decoder.gate"]}
    assert not (every.int16 or sums.int16)


def test_where_nothing_is_light_there_are_no_such_mixes() -> None:
    stage = Stage(Recipe(), made(common_mode(), offsets(2)), FloatRuns(0, (), ()))
    assert light_mixes(stage) == ()


@pytest.mark.parametrize(("good", "longest", "expected"), [(100.0, 0.0, True), (0.0, 0.0, False)])
def test_light_nodes_without_attention_become_float_for_the_time_of_other_nodes(
    good: float, longest: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = offsets(8)
    quantizer = made(hidden_common_mode(4, 30.0), kept)
    runs = float_runs(quantizer.graph, kept, quantizer.options)
    plain = Stage(Recipe(), quantizer, runs)
    assert plain.sqnr_db > GOOD_DB
    monkeypatch.setattr("qglow.tuning.wide_search.wide_mixes", lambda stage, share: [])
    monkeypatch.setattr("qglow.tuning.wide_search.LONGEST_GOOD", good)
    monkeypatch.setattr("qglow.tuning.wide_search.LONGEST", good)
    monkeypatch.setattr("qglow.tuning.wide_search.LONGEST_LIGHT", longest)
    search = WideSearch(plain, lambda recipe: Stage(recipe, quantizer, runs))
    search.run(60.0)
    assert bool(search.mixed.keep_float) is expected


def test_light_nodes_of_a_broken_model_without_attention_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is too long for it, so all of them would become float before a few are tried in int16."""
    kept = offsets(8)
    quantizer = made(hidden_common_mode(4, 3000.0), kept)
    runs = float_runs(quantizer.graph, kept, quantizer.options)
    plain = Stage(Recipe(), quantizer, runs)
    assert plain.sqnr_db < BROKEN_DB
    monkeypatch.setattr("qglow.tuning.wide_search.wide_mixes", lambda stage, share: [])
    monkeypatch.setattr("qglow.tuning.wide_search.widest_mixes", lambda stage: [])
    search = WideSearch(plain, lambda recipe: Stage(recipe, quantizer, runs))
    search.run(60.0)
    assert not search.mixed


@pytest.mark.parametrize(("longest", "expected"), [(100.0, True), (0.0, False)])
def test_light_nodes_beside_attention_become_float_for_a_decibel_and_little_time(
    longest: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = pictures(8)
    quantizer = made(vision(30.0), kept)
    runs = float_runs(quantizer.graph, kept, quantizer.options)
    plain = Stage(Recipe(calibration=Calibration.parse("minmax")), quantizer, runs)
    assert plain.sqnr_db > GOOD_DB
    monkeypatch.setattr("qglow.tuning.wide_search.wide_mixes", lambda stage, share: [])
    for limit in ("LONGEST", "LONGEST_LIGHT"):
        monkeypatch.setattr(f"qglow.tuning.wide_search.{limit}", longest)
    search = WideSearch(plain, lambda recipe: Stage(recipe, quantizer, runs))
    search.run(60.0)
    assert bool(search.mixed.keep_float) is expected
    assert (search.best.sqnr_db > plain.sqnr_db + 1.0) is expected
    assert not any(kind.is_wide for kind in search.best.parameters.values())


def many_common_modes(count: int) -> Graph:
    """The sum of many parts, each of which loses as much by a shift there and back."""
    b = GraphBuilder("many")
    x = b.input("x", float_type(1, 400))
    total = x
    for part in range(count):
        shift = 3000.0 * np.ones((1, 400), np.float32)
        there = b.node(Add(), x, b.constant(f"up{part}", shift), name=f"there{part}")
        back = b.node(Add(), there, b.constant(f"down{part}", -shift), name=f"back{part}")
        total = b.node(Add(), total, back, name=f"total{part}")
    return b.finish(total)


def test_a_model_that_loses_a_little_everywhere_gets_more_and_more_wide_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qglow.tuning.wide_search._ROUNDS", 0)
    kept = offsets(2)
    quantizer = made(many_common_modes(18), kept)
    runs = float_runs(quantizer.graph, kept, quantizer.options)
    plain = Stage(Recipe(), quantizer, runs)
    assert plain.sqnr_db < BROKEN_DB
    search = WideSearch(plain, lambda recipe: Stage(recipe, quantizer, runs))
    search.run(GOOD_DB)
    assert search.best.sqnr_db >= GOOD_DB
    assert len(search.mixed.int16) > 8


def test_a_product_that_reads_an_int16_value_may_stay_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = offsets(8)
    quantizer = made(read_twice(), kept)
    stage = Stage(Recipe(), quantizer, float_runs(quantizer.graph, kept, quantizer.options))
    heavy = next(node.name for node in quantizer.graph.nodes if node.output.name == "coarse")
    forms = [mix for mixes in wide_mixes(stage, 0.15) for mix in mixes]
    assert any(mix.int16 for mix in forms)
    assert not any(heavy in (*mix.int16, *mix.keep_float) for mix in forms)
    for limit in ("LONGEST_GOOD", "LONGEST"):
        monkeypatch.setattr(f"qglow.tuning.wide_search.{limit}", 100.0)
    found = repaired(Recipe(), quantizer, kept)
    assert level(quantizer, found.recipe, kept) > stage.sqnr_db + 10.0


def test_the_int8_copy_of_an_int16_value_is_rehearsed_apart() -> None:
    kept = offsets(8)
    quantizer = made(read_twice(), kept)
    rule = Rule(Match(name="small"), dtype="int16")
    stage = Stage(Recipe(rules=(rule,)), quantizer, float_runs(quantizer.graph, kept, quantizer.options))
    assert sum(name.startswith("small") for name in stage.parameters) == 2
    assert stage.level == pytest.approx(stage.measured.level, abs=0.1)
    for parameters in stage.proposed(METHODS):
        assert parameters.keys() >= stage.parameters.keys()


@pytest.mark.parametrize(("slow", "taken"), [("int16", "float for"), ("float", "int16 for")])
def test_of_two_wide_forms_the_faster_one_is_taken(
    slow: str, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = offsets(8)
    quantizer = made(hidden_common_mode(4), kept)
    names = ("large", "small", "y")
    forms = Mix(int16=names), Mix(keep_float=names)
    monkeypatch.setattr("qglow.tuning.wide_search.wide_mixes", lambda stage, share: [forms])
    monkeypatch.setattr("qglow.tuning.wide_search.GAIN_DB", 3.0)
    monkeypatch.setattr("qglow.tuning.wide_search.LONGEST", 100.0)
    monkeypatch.setattr("qglow.tuning.wide_search.LONGEST_GOOD", 100.0)

    def cycles(stage: Stage) -> float:
        """Ten times as long for one form."""
        return 10.0 if any(rule.dtype == slow for rule in stage.recipe.rules) else 1.0

    monkeypatch.setattr(Stage, "cycles", property(cycles))
    assert repaired(Recipe(), quantizer, kept).repairs[-1].what.startswith(taken)


def test_the_value_at_fault_is_found_among_many_though_it_loses_little_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = offsets(8)
    quantizer = made(hidden_common_mode(), kept)
    stage = Stage(Recipe(), quantizer, float_runs(quantizer.graph, kept, quantizer.options))
    monkeypatch.setattr("qglow.tuning.stage._LOOKING", 4.0 * stage.cost)
    assert len(stage.parameters) > 40 and stage.own_noise["large"] < stage.own_noise["mul0"]
    assert next(iter(stage.costliest)) == ("large",)


def test_each_output_that_suffers_is_helped_though_others_suffer_as_much() -> None:
    kept = offsets(4)
    quantizer = made(rare(), kept)
    stage = Stage(Recipe(), quantizer, float_runs(quantizer.graph, kept, quantizer.options))
    assert stage.sqnr_db < BROKEN_DB
    *_, (largest, *_) = wide_mixes(stage, 1.0)
    assert set(largest.keep_float) == {f"Sigmoid_{head}" for head in range(6)}
