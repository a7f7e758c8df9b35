"""The check of an int8 graph at its outputs."""

from __future__ import annotations

import math

import numpy as np
import pytest

import qglow
from qglow.core.types import Array
from qglow.profiling.samples import Sample
from qglow.report.output_errors import OutputErrorCounter, OutputErrors
from qglow.report.score_axes import ScoreAxis
from qglow.report.verdict import word_of
from qglow.tuning.self_check import float_runs, measure_outputs
from tests.zoo import REPOSITORY

DIGITS = REPOSITORY / "calib_data" / "digits.onnx"
CALIBRATION = REPOSITORY / "calib_data" / "calib.npz"


def measured(**pairs: tuple[Array, Array]) -> OutputErrors:
    """Errors of outputs, each given as what int8 has and what float has."""
    counter = OutputErrorCounter()
    counter.add({n: found for n, (found, _) in pairs.items()}, {n: real for n, (_, real) in pairs.items()})
    return counter.result(1)


def reals(*values: float) -> Array:
    return np.array(values, np.float32)


def test_the_smallest_sqnr_of_an_output_counts() -> None:
    found = measured(a=(reals(1.0, 1.1), reals(1, 1)), b=(reals(2.0, 4.0), reals(2, 2)))
    assert [output.name for output in found.outputs] == ["a", "b"]
    assert found.outputs[0].sqnr_db == pytest.approx(23.0, abs=0.05)
    assert found.sqnr_db == found.outputs[1].sqnr_db == pytest.approx(10 * math.log10(8 / 4))


def test_equal_outputs_have_no_noise() -> None:
    assert measured(a=(reals(0, 0), reals(0, 0))).sqnr_db == math.inf


def test_an_output_of_zeros_has_no_level() -> None:
    found = measured(a=(reals(0, 0.5), reals(0, 0)))
    assert found.sqnr_db is None and found.outputs[0].max_abs == 0.5


def test_new_nan_and_infinities_are_the_worst() -> None:
    assert measured(a=(reals(1, math.nan), reals(1, 1))).sqnr_db == -math.inf
    same = measured(a=(reals(1, math.nan), reals(1, math.nan)))
    assert same.non_finite == 0 and same.sqnr_db == math.inf


def test_huge_outputs_keep_a_finite_level() -> None:
    found = measured(a=(reals(3e38, 1e38), reals(3.1e38, 1e38))).sqnr_db
    assert found is not None and 29 < found < 31


def test_integers_agree_or_not() -> None:
    labels = measured(a=(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])))
    assert labels.sqnr_db is None and labels.agreement == 0.75
    flags = measured(a=(np.array([True, False]), np.array([True, True])))
    assert flags.agreement == 0.5


def test_scores_agree_in_their_best_class() -> None:
    scores = reals(0.1, 0.7, 0.2).reshape(1, 3)
    assert measured(a=(scores[:, ::-1].copy(), scores)).agreement == 1.0
    assert measured(a=(-scores, scores)).agreement == 0.0
    assert measured(a=(scores.reshape(3, 1), scores.reshape(3, 1))).agreement is None


def test_scores_at_positions_agree_beyond_chance() -> None:
    blank, letter = reals(0.9, 0.1, 0.0), reals(0.2, 0.8, 0.0)
    expected = np.stack([letter if place % 10 == 0 else blank for place in range(200)]).reshape(2, 100, 3)
    silent = np.broadcast_to(blank, expected.shape).copy()
    late = np.roll(expected, 1, axis=1)
    for found, agreement, beyond in ((silent, 0.9, 0.0), (expected, 1.0, 1.0), (late, 0.8, -1 / 9)):
        counter = OutputErrorCounter({"y": ScoreAxis(2, True, True)})
        for sample in (0, 1):
            counter.add({"y": found[sample : sample + 1]}, {"y": expected[sample : sample + 1]})
        [error] = counter.result(2).outputs
        assert error.agreement == pytest.approx(agreement)
        assert error.beyond_chance == pytest.approx(beyond) and error.probabilities
    few = OutputErrorCounter({"y": ScoreAxis(2, True, True)})
    few.add({"y": silent[:1]}, {"y": expected[:1]})
    assert few.result(1).outputs[0].beyond_chance is None


def test_probabilities_are_compared_as_the_scores_that_a_softmax_made_them_of() -> None:
    """Close calls that turn cost the probabilities as much as whole answers, and the scores little."""
    scores = np.random.default_rng(3).normal(size=(32, 12)) * 6.0
    scores[::8, 1] = scores[::8].max(axis=1)
    scores[::8, 0] = scores[::8, 1] + 0.5
    noisy = scores.copy()
    noisy[::8, :2] += [-0.9, 0.9]

    def probabilities(logits: Array) -> Array:
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True), np.float32)

    found = measured(y=(probabilities(noisy), probabilities(scores)))
    real = measured(y=(noisy.astype(np.float32), scores.astype(np.float32)))
    [output] = found.outputs
    assert output.agreement == 1.0 - 4 / 32 and output.beyond_chance is None
    assert output.sqnr_db is not None and output.sqnr_db < 15.0
    assert output.logarithms_db == pytest.approx(real.sqnr_db, abs=1.5)
    assert real.outputs[0].logarithms_db is None
    assert word_of(found) == word_of(real) == "good"


def test_probabilities_below_a_step_are_equal() -> None:
    wanted, given = reals(0.9999, 0.0001).reshape(1, 2), reals(0.9961, 0.0).reshape(1, 2)
    levels = []
    for steps in ({}, {"y": 1.0 / 256.0}):
        counter = OutputErrorCounter(steps=steps)
        counter.add({"y": given}, {"y": wanted})
        levels.append(counter.result(1).outputs[0].logarithms_db)
    assert levels[0] is not None and levels[1] is not None and levels[0] < 5.0 < 40.0 < levels[1]


def test_named_scores_alone_are_compared_by_class() -> None:
    counter = OutputErrorCounter({"y": ScoreAxis(1)})
    scores = reals(0.1, 0.7, 0.2).reshape(1, 3)
    counter.add({"y": scores, "wave": scores}, {"y": scores, "wave": -scores})
    assert {error.name: error.agreement for error in counter.result(1).outputs} == {"y": 1.0, "wave": None}


def test_scalars_and_empty_outputs_are_compared() -> None:
    found = measured(a=(np.float32(2.0).reshape(1), np.float32(1.0).reshape(())), b=(reals(), reals()))
    assert found.outputs[0].sqnr_db == 0.0 and found.outputs[1].sqnr_db is None


def test_a_quantized_model_is_measured_on_kept_samples() -> None:
    model = qglow.load_model(DIGITS)
    profile = model.profile(CALIBRATION, samples=32)
    good, bad = (
        model.quantize(profile, calibration=method, repair=False).graph
        for method in ("minmax", "percentile:51")
    )
    runs = float_runs(model.graph, profile.kept[:8])
    assert runs.samples == len(runs.inputs) == 8
    found, worse = measure_outputs(runs, good), measure_outputs(runs, bad)
    assert found.sqnr_db is not None and worse.sqnr_db is not None
    assert found.sqnr_db > 20 > 10 > worse.sqnr_db
    assert found == measure_outputs(runs, good)
    assert runs.part(0, 2).samples == runs.part(1, 2).samples == 4


def test_int8_inputs_and_outputs_are_measured_as_reals() -> None:
    model = qglow.load_model(DIGITS)
    profile = model.profile(CALIBRATION, samples=32)
    runs = float_runs(model.graph, profile.kept)
    plain, whole = (
        measure_outputs(runs, model.quantize(profile, io=io, repair=False).graph) for io in ("float", "int8")
    )
    assert plain.sqnr_db is not None and whole.sqnr_db is not None
    assert abs(plain.sqnr_db - whole.sqnr_db) < 6


def test_a_larger_batch_is_filled_up() -> None:
    model = qglow.load_model(DIGITS)
    profile = model.profile(CALIBRATION, samples=32)
    whole = model.with_batch(5)
    runs = float_runs(whole.graph, profile.kept[:8])
    assert runs.samples == 8 and len(runs.inputs) == 2
    found = measure_outputs(runs, whole.quantize(profile, repair=False).graph)
    alone = measure_outputs(
        float_runs(model.graph, profile.kept), model.quantize(profile, repair=False).graph
    )
    assert found.sqnr_db is not None and alone.sqnr_db is not None
    assert abs(found.sqnr_db - alone.sqnr_db) < 3


def test_no_samples_give_no_runs() -> None:
    none: list[Sample] = []
    assert float_runs(qglow.load_model(DIGITS).graph, none).inputs == ()


def test_the_verdict_measures_the_program_that_the_choice_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    model = qglow.load_model(DIGITS)
    profile = model.profile(CALIBRATION)
    chosen = model.quantize(profile)
    assert chosen.verdict is not None and chosen.verdict.is_measured
    again = model.quantize(profile, recipe=chosen.recipe, repair=False)

    def refuse(*given: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("qglow.tuning.self_check.obtain_executable", refuse)
    reused = model.quantize(profile)
    assert reused.verdict == chosen.verdict == again.verdict
    with pytest.raises(AssertionError, match="compiled again"):
        model.quantize(profile, repair=False)
