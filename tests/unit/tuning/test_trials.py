"""What one int8 model comes to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.report.comparison_result import FLOAT, INT8, Accuracy, Agreement, Comparison, Pairing
from qglow.report.metrics import error_between
from qglow.report.significance import Flips
from qglow.report.task_metric import MetricFigures
from qglow.tuning.mix import Mix
from qglow.tuning.search import Figures, Goal, Trial
from qglow.tuning.sections import goal_text, recipe_comments, tuning_section
from qglow.tuning.trials import Remembering, drop_error, measured_accuracy


class Doubling:
    """A program that counts its calls."""

    inputs = {"x": float_type(1, 2)}

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, inputs: Mapping[str, np.ndarray], /) -> dict[str, np.ndarray]:
        self.calls += 1
        return {"y": 2.0 * inputs["x"]}


def given(value: float) -> dict[str, np.ndarray]:
    return {"x": np.full((1, 2), value, np.float32)}


def test_the_same_is_asked_once_as_long_as_there_is_memory() -> None:
    program = Doubling()
    remembering = Remembering(program, most=16)
    for _ in range(3):
        for value in (1.0, 2.0, 3.0):
            assert np.array_equal(remembering(given(value))["y"], 2.0 * given(value)["x"])
    assert program.calls == 2 + 3, "two answers of 8 bytes are kept, the third is asked for again"
    assert remembering.inputs == program.inputs


def comparison(agreement: bool = False, labels: bool = False, metric: bool | None = None) -> Comparison:
    errors = error_between(np.array([1.0, 2.0]), np.array([1.0, 2.5]))
    agree = Agreement(4, 0.75, 1.0) if agreement else None
    accuracy = {INT8: Accuracy(4, 0.5, 1.0), FLOAT: Accuracy(4, 0.75, 1.0)} if labels else {}
    values = {INT8: 7.0} | ({FLOAT: 8.0} if metric else {})
    figures = None if metric is None else MetricFigures("mine", values)
    return Comparison(4, (Pairing(INT8, FLOAT, {}, errors, agree),), accuracy, figures)


def test_accuracy_is_the_best_that_there_is() -> None:
    everything = {"agreement": True, "labels": True}
    assert measured_accuracy(comparison(**everything, metric=True)) == ("mine", 7.0, 8.0)
    assert measured_accuracy(comparison(**everything, metric=False)) == ("mine", 7.0, None)
    assert measured_accuracy(comparison(**everything)) == ("top-1", 50.0, 75.0)
    assert measured_accuracy(comparison(agreement=True)) == ("agreement", 75.0, 100.0)
    name, value, reference = measured_accuracy(comparison())
    assert (name, reference) == ("SQNR", None)
    assert value == pytest.approx(10.0 * math.log10(7.25 / 0.25))


def test_the_error_of_a_drop_is_of_the_samples_that_flipped() -> None:
    assert drop_error(comparison()) is None, "SQNR has none"
    assert drop_error(comparison(agreement=True, metric=True)) is None, "nor has a metric"
    assert drop_error(comparison(agreement=True)) == Flips(4, 1, 0).drop_error
    labelled = comparison(agreement=True, labels=True)
    flips = Flips(500, 7, 3)
    paired = replace(labelled, pairings=(replace(labelled.pairings[0], flips=flips),))
    assert drop_error(paired) == flips.drop_error


def test_16_bit_floats_have_a_column_where_there_are_any() -> None:
    plain = Trial(0, Mix(), Figures("top-1", 80.0, 90.0, 12.0, 1.0, 1000))
    better = Trial(2, Mix(("a",), (), ("b",), ("c",)), Figures("top-1", 89.9, 90.0, 20.0, 1.1, 2000))
    table, _ = tuning_section([plain, better], better).blocks
    assert table.rows[1][:3] == ("0", "1", "2")  # type: ignore[union-attr]


def test_a_goal_that_samples_cannot_tell_is_told() -> None:
    plain = Trial(0, Mix(), Figures("top-1", 89.0, 90.0, 20.0, 1.0, 1000, drop_error=2.0))
    goal = Goal(max_drop=0.3)
    paragraph, _ = tuning_section([plain], None, goal).blocks
    assert "noise on these samples" in paragraph.text  # type: ignore[union-attr]
    assert "# A drop of 0.3 is noise" in recipe_comments(plain, plain.figures, goal, "test.npz", 500)


def test_the_table_and_the_comments_say_what_was_measured() -> None:
    plain = Trial(0, Mix(), Figures("top-1", 80.0, 90.0, 12.0, 1.0, 1000))
    better = Trial(2, Mix(("a", "b", "c"), ("d",)), Figures("top-1", 89.9, 90.0, 20.0, 1.1, 2000))
    table, chosen = tuning_section([plain, better], better).blocks
    assert table.rows == (  # type: ignore[union-attr]
        ("0", "0", "80.00 %", "10.00", "12.00 dB", "1.00 ms", "1.00", "1.00 kB", ""),
        ("1", "3", "89.90 %", "0.10", "20.00 dB", "1.10 ms", "1.10", "2.00 kB", "chosen"),
    )
    text = "Chosen: float for a, b, c; int16 for d."
    assert chosen.text == text  # type: ignore[union-attr]
    goal = Goal(max_drop=0.3, max_latency_ms=2.0)
    assert goal_text(goal) == "a drop of at most 0.3 and at most 2 ms a call"
    lines = recipe_comments(better, plain.figures, goal, "test.npz", 500).splitlines()
    assert all(line.startswith("# ") for line in lines)
    assert "3 more nodes in float, 1 in int16" in lines[0] and "500 samples of test.npz" in lines[-1]
    assert any("89.90 % (float 90.00 %)" in line for line in lines)
