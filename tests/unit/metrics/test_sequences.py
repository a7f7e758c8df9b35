"""Decoding by connectionist temporal classification, edits, and tokens, on cases worked out by hand."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.metrics import (
    cross_entropy,
    ctc_decode,
    edit_accuracy,
    edit_distance,
    exact_match,
    log_likelihood,
    perplexity,
)

symbols = st.lists(st.integers(0, 3), max_size=7)


def scores_of(*paths: list[int]) -> np.ndarray:
    return np.eye(4, dtype=np.float32)[np.array(paths)]


def test_repeats_merge_and_blanks_part_and_vanish() -> None:
    assert ctc_decode(scores_of([0, 1, 1, 0, 1, 2], [0, 0, 0, 0, 0, 0])) == [[1, 1, 2], []]
    assert ctc_decode(scores_of([3, 1, 1, 3, 0, 0]), blank=-1) == [[1, 0]]
    assert ctc_decode(scores_of([3, 1, 1, 3, 0, 0]), blank=3) == [[1, 0]]


def test_scores_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"scores \[3, 4\] are not \[N, steps, classes\]"):
        ctc_decode(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="with a class 4"):
        ctc_decode(np.zeros((1, 3, 4)), 4)


def test_edits_by_hand() -> None:
    assert edit_distance([1, 2, 3], [1, 2, 3]) == 0
    assert edit_distance([1, 3], [1, 2, 3]) == edit_distance([1, 2, 3], [1, 3]) == 1
    assert edit_distance([3, 2, 1], [1, 2, 3]) == 2
    assert edit_distance([], [1, 2]) == 2


@given(symbols, symbols)
def test_edits_are_those_of_the_recursive_definition(a: list[int], b: list[int]) -> None:
    @cache
    def fewest(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        changed = fewest(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        return min(changed, fewest(i - 1, j) + 1, fewest(i, j - 1) + 1)

    assert edit_distance(a, b) == fewest(len(a), len(b))


def test_whole_sequences_and_symbols() -> None:
    true = [(1, 2, 3), (4,), (5, 6)]
    found = [[1, 2, 3], [4, 4], [5, 6]]
    assert exact_match(found, true) == pytest.approx(200 / 3)
    assert edit_accuracy(found, true) == pytest.approx(100 * (1 - 1 / 6))
    assert exact_match(true, true) == edit_accuracy(true, true) == 100.0
    assert edit_accuracy([[], [], []], true) == 0.0
    assert edit_accuracy([[9] * 9], [(1,)]) == pytest.approx(-800.0)


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(ValueError, match="2 sequences are found, 1 are known"):
        exact_match([[1], [2]], [[1]])
    with pytest.raises(ValueError, match="0 sequences"):
        exact_match([], [])
    with pytest.raises(ValueError, match="all true sequences are empty"):
        edit_accuracy([[1]], [[]])


def test_entropy_of_tokens_by_hand() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
    expected = -(math.log(0.25) + math.log(0.8)) / 2
    assert cross_entropy(logits, np.array([1, 2])) == pytest.approx(expected)
    assert cross_entropy(logits + 1000.0, np.array([1, 2])) == pytest.approx(expected)
    assert perplexity(np.zeros((5, 7)), np.arange(5)) == pytest.approx(7.0)


def test_logits_are_for_the_next_token() -> None:
    tokens = np.array([[0, 2, 1]])
    logits = np.full((1, 3, 3), -1e4)
    logits[0, 0, 2] = logits[0, 1, 1] = 0.0  # sure of each next token; the last row is for none
    assert log_likelihood({"y": logits}, {"x": tokens}) == pytest.approx(0.0)
    assert log_likelihood({"y": np.zeros((1, 3, 3))}, {"x": tokens}) == pytest.approx(-math.log(3.0))


def test_tokens_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"no logits .* there are x \[1, 3\], y \[1, 4, 5\]"):
        log_likelihood({"y": np.zeros((1, 4, 5))}, {"x": np.zeros((1, 3), np.int64)})
    with pytest.raises(ValueError, match="no logits"):
        log_likelihood({"y": np.zeros((1, 3, 5))}, {"x": np.zeros((1, 3), np.float32)})
    with pytest.raises(ValueError, match="outside of a vocabulary of 3"):
        cross_entropy(np.zeros((1, 3)), np.array([3]))
    with pytest.raises(ValueError, match="do not fit"):
        cross_entropy(np.zeros((2, 3)), np.array([1]))
