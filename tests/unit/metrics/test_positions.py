"""Scores of classes by sample and by position: against labels, tokens and the float model."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qglow.metrics import agreement, ctc_decode, kl_float, top1, top5
from qglow.metrics.decoders import DECODERS
from qglow.metrics.positions import divergences, label_cross_entropy, label_perplexity, log_probabilities

BEST = np.array([[0, 1, 2], [3, 3, 0]])
"""Best classes of two samples with three positions."""
SCORES = {"y": np.eye(4, dtype=np.float32)[BEST] * 5}


def test_labels_of_positions_are_counted_one_by_one() -> None:
    assert top1(SCORES, BEST) == 100.0
    assert top1(SCORES, np.array([[0, 1, 3], [3, 0, 1]])) == 50.0
    assert top5({"y": np.eye(6, dtype=np.float32)[BEST]}, np.full((2, 3), 5)) == 0.0


def test_positions_of_negative_labels_do_not_count() -> None:
    assert top1(SCORES, np.array([[0, 1, -100], [-1, 0, 1]])) == 50.0
    with pytest.raises(ValueError, match="are not classes"):
        top1(SCORES, np.full((2, 3), -100))
    with pytest.raises(ValueError, match="are not classes"):
        top1(SCORES, np.full((2, 3), 4))


def test_the_first_real_output_that_has_the_positions_is_scored() -> None:
    ids = np.zeros((2, 3, 4), np.int64)
    other = np.zeros((2, 5, 4), np.float32)
    assert top1({"ids": ids, "other": other, **SCORES}, BEST) == 100.0
    with pytest.raises(ValueError, match=r"no output \[N, T, classes\] for labels \[2, 3\]; there are other"):
        top1({"other": other}, BEST)


def test_agreement_and_divergence_from_float_by_hand() -> None:
    found = {"y": SCORES["y"].copy()}
    found["y"][0, 0] = [0, 9, 0, 0]
    assert agreement(found, SCORES) == pytest.approx(100 * 5 / 6)
    assert agreement(found, SCORES, np.array([[-100, 1, 1], [1, 1, 1]])) == 100.0
    assert kl_float(SCORES, SCORES) == 0.0
    half, quarter = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    expected = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert kl_float({"y": quarter + 7}, {"y": half - 3}) == pytest.approx(expected)
    assert kl_float({"y": np.exp(quarter)}, {"y": np.exp(half)}) == pytest.approx(expected)


def test_divergences_are_those_of_each_position() -> None:
    half, quarter = np.log([0.5, 0.5]), np.log([0.25, 0.75])
    reference, found = np.stack([[half] * 3] * 2), np.stack([[half, quarter, half]] * 2)
    one = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    each = divergences({"y": found}, {"y": reference}, np.array([[0, 0, -100], [0, 0, 1]]))
    np.testing.assert_allclose(each, [[0, one, np.nan], [0, one, 0]], atol=1e-12)
    assert kl_float({"y": found}, {"y": reference}) == pytest.approx(one / 3)
    assert divergences({"y": found[0]}, {"y": reference[0]}).shape == (3, 1)


def test_labels_that_fit_no_output_mask_nothing() -> None:
    flat = {"y": np.eye(4)[[0, 1]]}
    assert agreement(flat, flat, np.array([[1, 2, 3], [1, 2, 3]])) == 100.0


def test_entropy_is_of_labels_or_else_of_the_next_tokens() -> None:
    tokens = np.array([[3, 0, 1], [0, 3, 3]])  # each of the scores at t has its best at t + 1
    best = np.array([[0, 1, 2], [3, 3, 0]])
    scores = {"y": np.where(np.eye(4)[best] == 1, math.log(3), 0.0)}  # probability 1/2 of the best
    assert label_cross_entropy(scores, tokens) == pytest.approx(math.log(2))
    assert label_perplexity(scores, tokens) == pytest.approx(2.0)
    assert label_cross_entropy(scores, tokens, labels=best) == pytest.approx(math.log(2))
    masked = np.where(best == 0, -100, (best + 1) % 4)
    assert label_cross_entropy(scores, None, labels=masked) == pytest.approx(math.log(6))
    with pytest.raises(ValueError, match="no labels, and no input"):
        label_cross_entropy(scores, None)
    with pytest.raises(ValueError, match=r"no logits .* for tokens \[2, 1\]"):
        label_cross_entropy(scores, tokens[:, :1])


def test_probabilities_are_told_from_logits() -> None:
    rounded = np.array([[0.5, 0.25, 0.0], [1.0, 0.0, 0.0]])  # rows that int8 has rounded
    np.testing.assert_allclose(np.exp(log_probabilities(rounded)), np.maximum(rounded, 1e-7))
    for logits in (rounded - 0.1, rounded * 1.1, np.full((2, 3), 0.9)):
        np.testing.assert_allclose(np.exp(log_probabilities(logits)).sum(1), 1.0)


def test_decoders_take_classes_before_steps() -> None:
    scores = np.random.default_rng(0).random((2, 7, 5))
    for name, blank in (("ctc_classes_first", 0), ("ctc_last_classes_first", -1)):
        assert DECODERS[name]({"y": scores.transpose(0, 2, 1)}) == ctc_decode(scores, blank)
    with pytest.raises(ValueError, match=r"are not \[N, classes, steps\]"):
        DECODERS["ctc_classes_first"]({"y": scores[0]})
