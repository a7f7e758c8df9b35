"""Intervals and tests against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qglow.report.significance import Flips, change_p_value, sign_test, wilson_interval


@pytest.mark.parametrize(
    ("lost", "won", "p"),
    [
        (0, 0, 1.0),
        (3, 3, 1.0),
        (1, 0, 1.0),
        (5, 0, 2 / 32),
        (6, 0, 2 / 64),
        (8, 2, 2 * (1 + 10 + 45) / 1024),
        (2, 8, 2 * (1 + 10 + 45) / 1024),
        (7, 3, 2 * (1 + 10 + 45 + 120) / 1024),
    ],
)
def test_mcnemars_exact_test(lost: int, won: int, p: float) -> None:
    assert sign_test(lost, won) == pytest.approx(p, rel=1e-12)
    assert Flips(100, lost, won).p_value == sign_test(lost, won)


def test_thousands_of_flips_are_no_problem() -> None:
    # With a million cases a difference of two standard deviations is 2000: twice 0.0228.
    assert sign_test(501_000, 499_000) == pytest.approx(math.erfc(math.sqrt(2.0)), rel=5e-3)
    assert sign_test(5000, 0) == 0.0 and sign_test(0, 0) == 1.0


def test_wilsons_interval_by_hand() -> None:
    # z^2 = 3.8414588: (8 + z^2/2) / (10 + z^2) +- z sqrt(8 * 2 / 10 + z^2 / 4) / (10 + z^2)
    square = 3.841458820694124
    centre = (8 + square / 2) / (10 + square)
    spread = math.sqrt(square) * math.sqrt(1.6 + square / 4) / (10 + square)
    assert wilson_interval(8, 10) == pytest.approx((centre - spread, centre + spread))
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


@pytest.mark.parametrize("samples", [1, 10, 500])
def test_intervals_end_at_none_and_all(samples: int) -> None:
    assert wilson_interval(0, samples)[0] == 0.0 and wilson_interval(samples, samples)[1] == 1.0
    assert 0.0 < wilson_interval(0, samples)[1] < 1.0
    assert wilson_interval(0, samples)[1] == pytest.approx(1.0 - wilson_interval(samples, samples)[0])


def test_no_samples_have_no_interval() -> None:
    with pytest.raises(ValueError, match="no samples"):
        wilson_interval(0, 0)


def test_a_change_is_tested_by_what_flipped_in_either() -> None:
    before, now = Flips(500, 4, 3), Flips(500, 12, 1)
    # 12 lost now and 3 won before speak against it, 1 won now and 4 lost before for it.
    assert change_p_value(before, now) == sign_test(15, 5)
    assert change_p_value(now, before) == sign_test(5, 15)
    assert change_p_value(before, before) == 1.0
    assert change_p_value(Flips(499, 4, 3), now) is None


def test_a_change_is_never_called_surer_than_the_paired_test() -> None:
    # Of the samples lost before and now, `common` are the same: the paired test does not see those.
    for common in range(5):
        worse, better = 12 - common + 3, 4 - common + 1
        bound = change_p_value(Flips(500, 4, 3), Flips(500, 12, 1))
        assert bound is not None and bound >= sign_test(worse, better)


@pytest.mark.parametrize(
    ("samples", "lost", "won"), [(200, 0.02, 0.02), (500, 0.03, 0.01), (1000, 0.002, 0.001)]
)
def test_the_interval_of_a_drop_holds_it_in_95_of_100_cases(samples: int, lost: float, won: float) -> None:
    random = np.random.default_rng(7)
    drawn = random.multinomial(samples, [lost, won, 1.0 - lost - won], 4000)
    held = 0
    for first, second, _ in drawn.tolist():
        drop = 100.0 * (first - second) / samples
        held += abs(drop - 100.0 * (lost - won)) <= Flips(samples, first, second).drop_error
    assert 0.935 <= held / len(drawn) <= 0.999


def test_without_flips_a_drop_may_still_hide() -> None:
    assert 0.1 < Flips(1000, 0, 0).drop_error < 0.3 < Flips(100, 0, 0).drop_error
