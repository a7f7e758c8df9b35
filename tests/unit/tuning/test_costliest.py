"""The values that cost most are found among many, by few trials."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.tuning.costliest import Group, costliest

NAMES = [f"v{number}" for number in range(200)]


class Noise:
    """Noise of values that add up, but for pairs of which each hides the other's; trials are counted."""

    def __init__(self, costs: dict[str, float], pairs: dict[Group, float] | None = None) -> None:
        self.costs, self.pairs, self.trials = costs, pairs or {}, 0

    def __call__(self, group: Group) -> float:
        self.trials += 1
        alone = math.fsum(cost for name, cost in self.costs.items() if name not in group)
        return alone + sum(cost for pair, cost in self.pairs.items() if not set(pair) <= set(group))

    @property
    def start(self) -> float:
        return math.fsum([*self.costs.values(), *self.pairs.values()])


def test_one_value_of_many_is_found_by_few_trials() -> None:
    noise = Noise({**dict.fromkeys(NAMES, 0.001), "v137": 0.7})
    found = costliest(NAMES, noise.start, noise, 31, 16)
    assert found[0][1] == ("v137",) and noise.trials <= 31
    assert found[0][0] == pytest.approx(noise.start - 0.7)


def test_several_come_in_the_order_of_what_they_cost() -> None:
    noise = Noise({**dict.fromkeys(NAMES, 0.0), "v3": 0.2, "v90": 0.5, "v91": 0.1, "v199": 0.4})
    found = costliest(NAMES, noise.start, noise, 100, 4)
    assert [group for _, group in found] == [("v90",), ("v199",), ("v3",), ("v91",)]


def test_neighbours_that_hide_each_other_are_one_cause() -> None:
    noise = Noise(dict.fromkeys(NAMES, 0.0), {("v60", "v61"): 1.0})
    [(left, group)] = costliest(NAMES, noise.start, noise, 100, 16)
    assert {"v60", "v61"} <= set(group) and len(group) <= 4 and left == pytest.approx(0.0)


def test_what_the_trials_do_not_reach_is_left_out() -> None:
    noise = Noise(dict.fromkeys(NAMES, 1.0))
    assert costliest(NAMES, noise.start, noise, 5, 16) == []
    assert costliest(NAMES, noise.start, noise, 0, 16) == [] and noise.trials <= 5
    assert costliest([], 0.0, noise, 5, 16) == []


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40), st.integers(0, 120))
def test_with_trials_for_all_the_costliest_comes_first(costs: list[float], trials: int) -> None:
    noise = Noise({f"v{number}": cost for number, cost in enumerate(costs)})
    found = costliest(list(noise.costs), noise.start, noise, trials, 16)
    assert noise.trials <= trials
    names = [name for _, group in found for name in group]
    assert len(names) == len(set(names)) and [left for left, _ in found] == sorted(left for left, _ in found)
    largest = max(costs)
    if trials >= 2 * len(costs) and largest > 1e-6:
        assert noise.costs[found[0][1][0]] == pytest.approx(largest)
