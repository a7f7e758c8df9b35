"""The search for the fewest steps that reach a goal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qglow.core.interruption import Interruption
from qglow.tuning.mix import Mix
from qglow.tuning.search import Figures, Goal, Trial, pareto, search, told_goal
from qglow.tuning.sections import told_text


def figures(accuracy: float, latency_ms: float = 1.0, sqnr_db: float = 20.0) -> Figures:
    return Figures("top-1", accuracy, 90.0, sqnr_db, latency_ms, 1000)


class Model:
    """Accuracy rises by a point a step up to that of float, time by a hundredth."""

    def __init__(self, plain: float = 80.0) -> None:
        self.plain = plain
        self.asked: list[int] = []

    def __call__(self, steps: int, mix: Mix) -> Figures:
        assert len(mix.keep_float) == len(set(mix.keep_float)) == steps
        self.asked.append(steps)
        return figures(min(self.plain + steps, 90.0), 1.0 + 0.01 * steps, 20.0 + steps)


def steps(count: int) -> list[Mix]:
    return [Mix((f"node{i}",)) for i in range(count)]


@pytest.mark.parametrize(("max_drop", "fewest"), [(10.0, 0), (9.5, 1), (5.0, 5), (0.3, 10)])
def test_the_fewest_steps_that_are_accurate_enough_are_found(max_drop: float, fewest: int) -> None:
    model = Model()
    found = search(steps(40), Goal(max_drop=max_drop), model)
    assert found.best is not None and found.best.steps == fewest
    assert found.best.keep_float == tuple(f"node{i}" for i in range(fewest))
    assert model.asked == list(dict.fromkeys(model.asked)), "nothing is measured twice"
    assert len(model.asked) <= 9 and not found.stopped


def test_trials_are_in_order_of_their_steps_and_nodes_of_several_steps_come_once() -> None:
    found = search(
        [Mix(("a",), ("b", "d")), Mix(("a", "b"), ("c",))],
        Goal(max_drop=0.0),
        lambda steps, mix: figures(80.0),
    )
    assert [trial.keep_float for trial in found.trials] == [(), ("a",), ("a", "b")]
    assert [trial.int16 for trial in found.trials] == [(), ("b", "d"), ("d", "c")], "float is above int16"


def test_a_goal_that_no_step_reaches_has_no_best() -> None:
    found = search(steps(5), Goal(max_drop=0.3), Model())
    assert found.best is None and not found.stopped
    assert found.trials[-1].steps == 5, "everything there is has been tried"


def test_an_interruption_keeps_the_best_so_far() -> None:
    model, told = Model(), list[str]()

    def evaluate(steps: int, mix: Mix) -> Figures:
        if len(model.asked) == 5:
            raise KeyboardInterrupt
        return model(steps, mix)

    found = search(steps(40), Goal(max_drop=5.0), evaluate, interruption=Interruption(told.append))
    assert found.stopped and told == ["measuring a model"]
    assert [trial.steps for trial in found.trials] == [0, 1, 2, 4, 8]
    assert found.best is not None and found.best.steps == 8
    with pytest.raises(KeyboardInterrupt):
        search(steps(40), Goal(max_drop=5.0), evaluate)


def test_with_a_limit_on_time_alone_the_most_steps_that_are_fast_enough_are_found() -> None:
    found = search(steps(40), Goal(max_latency_ms=1.0605), Model())
    assert found.best is not None and found.best.steps == 6


def test_all_steps_are_taken_where_all_are_fast_enough() -> None:
    found = search(steps(7), Goal(max_latency_ms=100.0), Model())
    assert found.best is not None and found.best.steps == 7


def test_no_more_steps_are_tried_once_they_are_too_slow() -> None:
    model = Model()
    found = search(steps(200), Goal(max_drop=0.0, max_latency_ms=1.035), model)
    assert found.best is None
    assert max(model.asked) == 4


def test_sqnr_and_a_metric_are_goals_too() -> None:
    found = search(steps(40), Goal(min_sqnr_db=27.0), Model())
    assert found.best is not None and found.best.steps == 7
    found = search(steps(40), Goal(min_metric=83.0), Model())
    assert found.best is not None and found.best.steps == 3


def test_nothing_is_begun_when_time_is_up_but_the_first() -> None:
    model = Model()
    found = search(steps(40), Goal(max_drop=0.3), model, lambda: True)
    assert found.stopped and found.best is None and model.asked == [0]
    left = iter([False, False, False, False, False, True])
    found = search(steps(40), Goal(max_drop=0.3), model, lambda: next(left))
    assert found.stopped
    assert found.best is not None and found.best.steps == 16, "what was found counts"


def test_plain_int8_that_is_good_enough_needs_no_steps() -> None:
    model = Model(90.0)
    found = search(steps(40), Goal(max_drop=0.3), model, lambda: True)
    assert found.best is not None and found.best.steps == 0
    assert not found.stopped


def test_an_accuracy_without_reference_keeps_to_no_drop() -> None:
    relative = replace(figures(30.0), reference=None)
    assert relative.drop is None
    assert not Goal(max_drop=100.0).met_by(relative)
    assert Goal(min_metric=30.0).met_by(relative)


def test_samples_that_can_tell_the_drop_leave_the_goal_alone() -> None:
    for plain, goal in (
        (replace(figures(89.8), drop_error=0.3), Goal(max_drop=0.3)),
        (replace(figures(89.8), drop_error=None), Goal(max_drop=0.3)),
        (replace(figures(89.8), drop_error=5.0), Goal(min_metric=80.0, min_sqnr_db=20.0)),
        (replace(figures(89.8), drop_error=5.0), Goal(max_drop=-1.0)),
    ):
        assert told_goal(goal, plain) == goal and told_text(goal, plain) == ""


def test_a_drop_below_the_noise_of_the_samples_is_an_sqnr() -> None:
    """Ten times the amplitude of what is allowed takes 20 dB."""
    plain = replace(figures(88.0, sqnr_db=20.0), drop_error=3.0)
    goal = told_goal(Goal(max_drop=0.5, max_latency_ms=9.0), plain)
    assert goal == Goal(max_drop=3.5, min_sqnr_db=pytest.approx(40.0), max_latency_ms=9.0)
    assert told_goal(Goal(max_drop=0.5, min_sqnr_db=50.0), plain).min_sqnr_db == 50.0
    better = replace(plain, accuracy=91.0)
    assert told_goal(Goal(max_drop=1.5), better).min_sqnr_db == pytest.approx(26.02, abs=0.01)
    none = told_goal(Goal(max_drop=0.0), plain).min_sqnr_db
    assert none is not None and none < 65.0, "no drop at all is an SQNR that can be reached"
    assert "noise on these samples, which tell 3.00 or more" in told_text(Goal(max_drop=0.5), plain)


def test_the_search_follows_sqnr_where_accuracy_is_noise() -> None:
    """Accuracy that goes up and down with every step would end the search at the first lucky one."""

    def evaluate(steps: int, mix: Mix) -> Figures:
        luck = 90.2 if steps == 1 else 88.9
        return Figures("top-1", luck, 90.0, 20.0 + steps, 1.0 + steps, 1000, drop_error=2.0)

    found = search(steps(40), Goal(max_drop=1.0), evaluate)
    # A drop of 1.1 and an error of 2.0 are 3.1 times what is allowed: 9.8 dB.
    assert found.best is not None and found.best.steps == 10
    assert found.followed.min_sqnr_db == pytest.approx(29.83, abs=0.01)
    lucky = search(steps(40), Goal(max_drop=1.0), lambda n, mix: replace(evaluate(n, mix), drop_error=None))
    assert lucky.best is not None and lucky.best.steps == 1 and lucky.followed == Goal(max_drop=1.0)


def test_pareto_leaves_out_what_another_beats() -> None:
    values = [(80.0, 1.0, 20.0), (79.0, 1.1, 30.0), (82.0, 1.2, 21.0), (82.0, 1.3, 22.0), (82.0, 1.4, 21.5)]
    trials = [Trial(i, Mix(), figures(*value)) for i, value in enumerate(values)]
    assert [trial.steps for trial in pareto(reversed(trials))] == [0, 2, 3]
    same = [Trial(0, Mix(), figures(80.0)), Trial(1, Mix(), figures(81.0))]
    assert [trial.steps for trial in pareto(same)] == [1], "of equally fast ones the more accurate"
