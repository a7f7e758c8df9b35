"""Default settings are chosen by what arrives at the outputs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from qglow.core.types import Array, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.elementwise import Mul
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.shape import Concat
from qglow.profiling.samples import Sample
from qglow.quantization.pipeline import QuantizedGraph, proposed_parameters
from qglow.recipe.choices import Calibration
from qglow.recipe.loading import parse_recipe
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.targets.capabilities import stepped
from qglow.targets.registry import select_target
from qglow.toolchain import CompileOptions, lower_graph
from qglow.tuning.output_noise import OutputNoise
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.rehearsal import Parameters, Rehearsal
from qglow.tuning.rehearsed_noise import RehearsedNoise, output_steps
from qglow.tuning.repair import FIRST, METHODS, ROWS_DB, Repaired, affordable, repaired
from qglow.tuning.self_check import float_runs, measure_outputs
from qglow.tuning.stage import Stage
from tests.unit.profiling.networks import profile_of, residual_network
from tests.unit.profiling.networks import samples as images
from tests.unit.tuning.repair_networks import (
    comb,
    level,
    made,
    offsets,
    outliers,
    rare,
)


def test_default_settings_are_good_where_the_default_calibration_ruins() -> None:
    kept = images(8)
    quantizer = made(outliers(), kept)
    plain = level(quantizer, Recipe(), kept)
    found = repaired(Recipe(), quantizer, kept)
    assert plain < 5.0
    assert level(quantizer, found.recipe, kept) > 25.0
    assert found.repairs and found.repairs[0].won_db > 20.0
    assert level(quantizer, found.recipe, images(8, seed=77)) > plain + 5.0


def test_a_comb_stays_good() -> None:
    kept, fresh = offsets(8), offsets(8, seed=77)
    quantizer = made(comb(), kept)
    found = repaired(Recipe(), quantizer, kept).recipe
    assert level(quantizer, found, fresh) > max(30.0, level(quantizer, Recipe(), fresh) - 0.5)


@pytest.mark.parametrize("calibration", ["kl", "minmax", "percentile:99.9"])
def test_a_rehearsal_tells_what_the_int8_program_does(calibration: str) -> None:
    graph, seen = residual_network(), profile_of(30)
    statistics = seen.check_matches(graph)
    quantizer = Quantizer(graph, statistics, seen.samples, options=CompileOptions(threads=1))
    recipe = Recipe(calibration=Calibration.parse(calibration))
    result: QuantizedGraph = quantizer(recipe)
    rehearsal = Rehearsal(result.source, result.graph, quantizer.options)
    options = Recipe()
    [parameters] = proposed_parameters(graph, dict(statistics), 30, options, [recipe.calibration])
    assert {"x", "stem", "depthwise", "pointwise"} <= rehearsal.rounded <= parameters.keys()
    kept = images(6, seed=4)
    runs, noise = float_runs(graph, kept, quantizer.options), OutputNoise()
    for inputs, expected in zip(runs.inputs, runs.outputs, strict=True):
        noise.add(rehearsal(inputs, parameters), expected)
        np.testing.assert_allclose(rehearsal(inputs, {})["y"], expected["y"], atol=0.05)
    real = measure_outputs(runs, result.graph, quantizer.options).sqnr_db
    assert -10.0 * np.log10(noise.worst) == pytest.approx(real, abs=2.0)


@pytest.mark.parametrize("calibration", METHODS)
def test_each_calibration_is_rehearsed_with_its_own_weights_and_biases(calibration: str) -> None:
    """Biases make up for what one calibration clips, and are wrong for the others."""
    kept = images(8)
    quantizer = made(outliers(), kept)
    recipe = Recipe(calibration=Calibration.parse(calibration))
    stage = Stage(recipe, quantizer, float_runs(quantizer.graph, kept, quantizer.options))
    assert stage.sqnr_db == pytest.approx(level(quantizer, recipe, kept), abs=1.0)


def test_class_probabilities_are_compared_by_logarithms() -> None:
    """Of two samples one is nearly certain: as it is, the other decides alone."""
    wanted = {"y": np.array([[0.999999, 0.000001], [0.5, 0.5]], np.float32)}
    sure, unsure = RehearsedNoise(), RehearsedNoise()
    sure.add({"y": np.array([[0.99, 0.01], [0.5, 0.5]], np.float32)}, wanted)
    unsure.add({"y": np.array([[0.999999, 0.000001], [0.49, 0.51]], np.float32)}, wanted)
    assert sure.plain.worst == pytest.approx(unsure.plain.worst, rel=0.01)
    assert sure.level < unsure.level - 20.0


def test_probabilities_below_a_step_of_int8_are_equal() -> None:
    """No calibration changes them, and their logarithms would drown what it does change."""
    wanted = {"y": np.array([[0.9999, 0.0001], [0.5, 0.5]], np.float32)}
    given = {"y": np.array([[0.9961, 0.0], [0.5, 0.5]], np.float32)}
    exact, stepped_noise = RehearsedNoise(), RehearsedNoise(steps={"y": 1.0 / 256.0})
    exact.add(given, wanted)
    stepped_noise.add(given, wanted)
    assert exact.level < 5.0 < 40.0 < stepped_noise.level


def test_the_steps_of_outputs_are_found_behind_data_movement() -> None:
    quantizer = made(rare(), offsets(4))
    steps = output_steps(quantizer(Recipe()).graph)
    assert len(steps) == 6 and set(steps.values()) == {1.0 / 256.0}
    assert output_steps(quantizer.graph) == {}


def test_other_outputs_are_compared_as_they_are() -> None:
    noise = RehearsedNoise()
    noise.add({"y": np.full((2, 3), 0.4, np.float32)}, {"y": np.full((2, 3), 0.5, np.float32)})
    assert noise.even == noise.plain


def test_what_a_recipe_states_stays() -> None:
    kept = offsets(8)
    quantizer = made(comb(), kept)
    for stated in (parse_recipe("calibration: kl"), Recipe().with_overrides(calibration="kl")):
        assert repaired(stated, quantizer, kept).recipe.calibration == Calibration()
    rule = Rule(Match(name=".*"), calibration=Calibration.parse("kl"))
    found = repaired(Recipe(rules=(rule,)), quantizer, kept).recipe
    assert found.rules[-1] == rule
    assert quantizer(found).report.tensors == quantizer(Recipe(rules=(rule,))).report.tensors


def test_the_recipe_that_is_found_gives_the_same_model_without_samples() -> None:
    kept = offsets(8)
    quantizer = made(comb(), kept)
    found = repaired(Recipe(), quantizer, kept).recipe
    again = parse_recipe(found.to_yaml())
    assert not again.calibration.is_default
    assert repaired(again, quantizer, []) == Repaired(again)
    np.testing.assert_equal(
        [v.data for v in quantizer(again).graph.constants()],
        [v.data for v in quantizer(found).graph.constants()],
    )
    assert [v.type for v in quantizer(again).graph.values()] == [
        v.type for v in quantizer(found).graph.values()
    ]


def test_without_samples_histograms_tell_what_is_not_safe() -> None:
    kept = images(8)
    quantizer = made(outliers(), kept)
    found = repaired(Recipe(), quantizer, [])
    [repair] = found.repairs
    assert "stem" in repair.values and repair.won_db is None
    assert level(quantizer, found.recipe, kept) > level(quantizer, Recipe(), kept) + 10.0
    stated = Recipe().with_overrides(calibration="kl")
    assert repaired(stated, quantizer, []) == Repaired(stated)
    harmless = made(residual_network(), kept)
    assert repaired(Recipe(), harmless, []) == Repaired(Recipe())


@pytest.mark.parametrize("isa", ["reference", None])
def test_steps_are_changed_in_place_before_they_are_read(isa: str | None) -> None:
    target = stepped(select_target(isa))
    program = lower_graph(outliers(), CompileOptions(observe=True))
    target.select(program, epilogues=False)
    target.plan(program, reuse=False)
    inputs = {"x": images(1)[0].inputs["x"][None]}
    code = target.stepped(program)
    plain = code.run_changed(inputs, {})["y"]

    def double(array: Array) -> None:
        array *= np.float32(2.0)

    np.testing.assert_array_equal(code.run_changed(inputs, {"total": double})["y"], 2.0 * plain)
    changed = code.run_changed({"x": inputs["x"] * np.float32(0.5)}, {"x": double})["y"]
    np.testing.assert_array_equal(changed, plain)
    with pytest.raises(KeyError):
        code.run_changed(inputs, {"nothing": double})


def test_the_worst_output_counts_and_what_is_not_finite() -> None:
    def arrays(*values: float) -> dict[str, Array]:
        return {"a": np.array(values, np.float32), "b": np.array([1.0], np.float32)}

    noise = OutputNoise()
    noise.add({**arrays(2.0, 1.0), "b": np.array([1.1], np.float32)}, arrays(1.0, np.inf))
    assert noise.worst == pytest.approx(1.0) and noise.score > noise.worst
    noise.add(arrays(np.nan, 1.0), arrays(1.0, 1.0))
    assert noise.worst == np.inf


def test_single_values_are_left_alone_where_no_samples_judge() -> None:
    kept = images(7)
    quantizer = made(residual_network(), kept)
    found = repaired(Recipe(), quantizer, kept)
    assert found.recipe.rules == () and all(not repair.values for repair in found.repairs)


def test_constants_are_rehearsed_as_int8_has_them() -> None:
    """The grid of the comb is rounded too."""
    quantizer = made(comb(), offsets(8))
    runs = float_runs(quantizer.graph, offsets(8), quantizer.options)
    stage = Stage(Recipe(calibration=Calibration.parse("minmax")), quantizer, runs)
    assert stage.level == pytest.approx(stage.measured.level, abs=0.5)


def test_more_samples_judge_and_do_not_choose() -> None:
    """What a change costs to try does not grow with the samples; what is known of it does."""
    quantizer = made(comb(), offsets(8))
    few, many = (
        Stage(Recipe(), quantizer, float_runs(quantizer.graph, offsets(count), quantizer.options))
        for count in (8, 32)
    )
    assert many.cost == few.cost
    assert many.chosen(many.parameters).plain.power["y"] < 0.5 * many.judged().plain.power["y"]
    assert many.noise.plain.power["y"] > 3.5 * few.noise.plain.power["y"]


def test_nodes_count_where_arithmetic_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of many small nodes is not searched for longer than the budget says."""
    b = GraphBuilder("chain")
    value, half = b.input("x", float_type(1, 400)), b.constant("half", np.full((1, 1), 0.5, np.float32))
    for _ in range(40):
        value = b.node(Mul(), value, half)
    quantizer, allowed = made(b.finish(value), offsets(8)), list[int]()
    runs = float_runs(quantizer.graph, offsets(8), quantizer.options)
    stage = Stage(Recipe(calibration=Calibration.parse("minmax")), quantizer, runs)

    def counted(names: object, start: float, left: object, trials: int, most: int) -> list[object]:
        allowed.append(trials)
        return []

    monkeypatch.setattr("qglow.tuning.stage.costliest", counted)
    monkeypatch.setattr("qglow.tuning.stage._LOOKING", 4e9)
    assert stage.costliest == {}
    seconds = allowed[0] * len(stage.result.source.nodes) * 25e-6
    assert 0.0 < seconds < 0.5


def test_calibrations_far_behind_are_given_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = images(16)
    quantizer, tried = made(outliers(), kept), list[Parameters]()
    rehearse = Stage._noise

    def counted(stage: Stage, run: int, parameters: Parameters) -> RehearsedNoise:
        tried.append(parameters)
        return rehearse(stage, run, parameters)

    monkeypatch.setattr(Stage, "_noise", counted)
    monkeypatch.setattr("qglow.tuning.repair.CLOSE_DB", 0.5)
    monkeypatch.setattr("qglow.tuning.repair.AMPLE_DB", 0.0)
    found = repaired(Recipe(), quantizer, kept)
    assert found.recipe.calibration.method == "mse"
    runs = Counter(id(parameters) for parameters in tried)
    # `kl`, `mse` as it is proposed and as it is then made, and two that are far behind.
    assert sorted(runs.values()) == [FIRST, FIRST, len(kept), len(kept), len(kept)]


@pytest.mark.parametrize(("profiled", "rehearsed"), [(8, 4), (24, 6), (400, 32)])
def test_a_large_model_is_rehearsed_over_a_quarter_of_what_was_profiled(
    profiled: int, rehearsed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qglow.tuning.repair._WHOLE", 0.0)
    quantizer = replace(made(comb(), offsets(8)), samples=profiled)
    assert len(affordable(quantizer, offsets(32))) == rehearsed


def test_equal_int8_forms_are_rehearsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = images(4)
    quantizer, made_programs = made(residual_network(), kept), list[object]()
    compiled = Rehearsal.__init__

    def counted(rehearsal: Rehearsal, *given: object) -> None:
        made_programs.append(rehearsal)
        compiled(rehearsal, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Rehearsal, "__init__", counted)
    runs = float_runs(quantizer.graph, kept, quantizer.options)
    plain = Stage(Recipe(calibration=Calibration.parse("minmax")), quantizer, runs)
    level = plain.level
    everything = Calibration.parse("percentile:100")
    same = Stage(Recipe(calibration=everything), quantizer, runs, (plain,))
    other = Stage(Recipe(calibration=Calibration.parse("percentile:90")), quantizer, runs, (plain, same))
    assert same.equals(plain) and not other.equals(plain)
    assert same.rehearsal is plain.rehearsal and other.rehearsal is not plain.rehearsal
    assert len(made_programs) == 2
    monkeypatch.setattr(Stage, "_noise", None)  # nothing is left to be rehearsed
    assert same.level == level
    assert same.measured is plain.measured
    assert plain.program_if_made is not None


def test_calibrations_share_the_code_of_one_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = images(4)
    quantizer, options = made(residual_network(), kept), CompileOptions(threads=1)
    results = [quantizer(Recipe(calibration=Calibration.parse(name))) for name in METHODS]
    alone = [Rehearsal(found.source, found.graph, options) for found in results]
    first, *others = results
    shared = [Rehearsal(first.source, first.graph, options)]
    with monkeypatch.context() as patch:
        patch.setattr("qglow.tuning.rehearsal.lower_graph", None)  # nothing more is compiled
        shared += [Rehearsal(found.source, found.graph, options, shared[-1:]) for found in others]
    runs = float_runs(quantizer.graph, kept, options)
    biases = set[bytes]()
    for result, own, other in zip(results, alone, shared, strict=True):
        biases.add(
            b"".join(value.data.tobytes() for value in result.graph.constants() if value.data is not None)
        )
        assert own.rounded == other.rounded
        for given in runs.inputs:
            wanted = own(given, {})
            for name, array in other(given, {}).items():
                np.testing.assert_array_equal(array, wanted[name])
    assert len(biases) > 1


def test_other_weights_take_the_place_of_those_that_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = images(4)
    quantizer, options = made(residual_network(), kept), CompileOptions(threads=1)
    plain, wide = quantizer(Recipe()), quantizer(Recipe(per_tensor=True))
    first = Rehearsal(plain.source, plain.graph, options)
    alone = Rehearsal(wide.source, wide.graph, options)
    given = {name: array[None] for name, array in kept[0].inputs.items()}
    wanted = alone(given, {})
    monkeypatch.setattr("qglow.tuning.rehearsal.lower_graph", None)  # nothing more is compiled
    for name, array in Rehearsal(wide.source, wide.graph, options, [first])(given, {}).items():
        np.testing.assert_array_equal(array, wanted[name])


def shared_scores() -> Graph:
    """Scores that are an output, and are joined to much larger values at the scale of these."""
    random = np.random.default_rng(4)
    b = GraphBuilder("shared")
    x = b.input("x", float_type(1, 400))
    weights = [random.normal(size=(400, 20)).astype(np.float32) * size for size in (0.1, 20.0)]
    logits, large = (
        b.node(Gemm(), x, b.constant(f"w{i}", w), b.constant(f"b{i}", np.full(20, -2.0 * i, np.float32)))
        for i, w in enumerate(weights)
    )
    scores = b.node(Sigmoid(), logits, name="scores")
    joined = b.node(Concat(1), scores, large, name="joined")
    drawn = b.constant("drawn", random.normal(size=(40, 8)).astype(np.float32))
    none = b.constant("none", np.zeros(8, np.float32))
    return b.finish(scores, b.node(Gemm(), joined, drawn, none, name="y"))


def test_what_some_readers_read_at_another_scale_is_rehearsed_apart() -> None:
    kept = offsets(8)
    quantizer = made(shared_scores(), kept)
    runs = float_runs(quantizer.graph, kept, quantizer.options)
    plain = Stage(Recipe(), quantizer, runs)
    assert sum(name.startswith("scores") for name in plain.parameters) == 2
    for name, proposal in plain.proposals(METHODS).items():
        stage = Stage(Recipe(calibration=Calibration.parse(name)), quantizer, runs)
        measured = stage.measured.plain.shares
        assert measured["scores"] < 1e-3  # its own steps are fine
        assert stage.noise.plain.shares == pytest.approx(measured, rel=0.2)
        assert proposal.level == pytest.approx(stage.measured.level, abs=1.0)


def test_a_model_that_is_fine_with_all_that_was_seen_gets_no_smaller_ranges() -> None:
    """Leaving the rarest elements out wins a little on the samples that judge, and nothing on others."""
    b = GraphBuilder("even")
    none = b.constant("none", np.zeros(400, np.float32))
    eye = b.constant("eye", np.eye(400, dtype=np.float32))
    graph = b.finish(b.node(Gemm(), b.input("x", float_type(1, 400)), eye, none, name="y"))
    drawn = np.random.default_rng(3).uniform(-1, 1, (16, 400)).astype(np.float32)
    drawn[::8, 0] = 1.1
    kept = [Sample(f"{i}", {"x": each}) for i, each in enumerate(drawn)]
    quantizer = made(graph, kept)
    levels = {m: level(quantizer, Recipe(calibration=Calibration.parse(m)), kept) for m in METHODS}
    assert max(levels, key=lambda m: levels[m]) == "percentile:99.99" and min(levels.values()) > ROWS_DB
    assert str(repaired(Recipe(), quantizer, kept).recipe.calibration) == "minmax"
