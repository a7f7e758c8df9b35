from __future__ import annotations

import math

import numpy as np
import pytest

from qglow.report.metrics import (
    ErrorAccumulator,
    HitCounter,
    StepAccumulator,
    error_between,
    rank_of,
)


def test_figures_of_a_known_pair() -> None:
    reference = np.array([0.0, 2.0, -4.0, 4.0], np.float32)
    summary = error_between(reference + np.array([0.0, 1.0, 0.0, -1.0], np.float32), reference)
    assert summary.elements == 4
    assert summary.equal == 0.5
    assert summary.max_abs == 1.0
    assert summary.mean_abs == 0.5
    assert summary.relative == 1.0 / 8.0  # the range is 8, the largest magnitude 4
    assert summary.rmse == pytest.approx(math.sqrt(0.5))
    assert summary.sqnr_db == pytest.approx(10 * math.log10(36 / 2))
    assert summary.cosine == pytest.approx((2 * 3 + 16 + 4 * 3) / math.sqrt(36 * (9 + 16 + 9)))


def test_equal_tensors_have_no_error() -> None:
    summary = error_between(np.ones(3, np.float32), np.ones(3, np.float32))
    assert (summary.max_abs, summary.sqnr_db, summary.equal, summary.non_finite) == (0.0, math.inf, 1.0, 0)
    assert summary.cosine == pytest.approx(1.0)


def test_a_constant_reference_is_measured_by_its_magnitude() -> None:
    assert error_between(np.array([5.5]), np.array([5.0])).relative == pytest.approx(0.1)


def test_zeros_are_handled() -> None:
    zeros = error_between(np.zeros(2), np.zeros(2))
    assert (zeros.relative, zeros.cosine, zeros.sqnr_db) == (0.0, 1.0, math.inf)
    wrong = error_between(np.ones(2), np.zeros(2))
    assert (wrong.relative, wrong.cosine, wrong.sqnr_db) == (math.inf, 0.0, -math.inf)


def test_non_finite_elements_are_counted_and_left_out() -> None:
    reference = np.array([1.0, np.nan, np.inf, np.inf, 2.0])
    summary = error_between(np.array([1.0, np.nan, np.inf, 3.0, np.nan]), reference)
    assert summary.non_finite == 2
    assert summary.equal == 3 / 5
    assert summary.max_abs == 0.0


def test_streaming_equals_one_pass() -> None:
    generator = np.random.default_rng(0)
    y, reference = generator.normal(size=(2, 64, 7)).astype(np.float32)
    parts = ErrorAccumulator()
    for start in (0, 10, 40):
        piece = ErrorAccumulator()
        piece.add(
            y[start : {0: 10, 10: 40, 40: 64}[start]], reference[start : {0: 10, 10: 40, 40: 64}[start]]
        )
        parts.merge(piece)
    whole, summed = error_between(y, reference), parts.summary()
    assert summed.max_abs == whole.max_abs
    assert summed.relative == whole.relative
    assert summed.sqnr_db == pytest.approx(whole.sqnr_db, rel=1e-12)
    assert summed.cosine == pytest.approx(whole.cosine, rel=1e-12)


def test_shapes_must_be_equal() -> None:
    with pytest.raises(ValueError, match="compared"):
        error_between(np.zeros((2, 1)), np.zeros((1, 2)))
    with pytest.raises(ValueError, match="no elements"):
        ErrorAccumulator().summary()


def test_steps_do_not_wrap() -> None:
    steps = StepAccumulator()
    steps.add(np.array([-128, 0, 5], np.int8), np.array([127, 0, 4], np.int8))
    summary = steps.summary()
    assert (summary.elements, summary.different, summary.max_step) == (3, 2, 255)
    assert summary.equal == pytest.approx(1 / 3)


def test_of_equal_scores_the_lower_class_comes_first() -> None:
    scores = np.array([[1.0, 3.0, 3.0, 2.0]])
    ranks = [int(rank_of(scores, np.array([label]))[0]) for label in range(4)]
    assert ranks == [3, 0, 1, 2]


def test_hits_among_one_and_five() -> None:
    hits = HitCounter()
    scores = np.tile(np.arange(8.0)[::-1], (3, 1))
    hits.add(scores, np.array([0, 4, 5]))
    assert hits.shares() == (1 / 3, 2 / 3)
