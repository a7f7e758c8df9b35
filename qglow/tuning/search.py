"""Search for the fewest steps from int8 to int16 and float that reach a goal, in a predicted order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from qglow.core.interruption import Interruption
from qglow.core.options import require_limits
from qglow.tuning.mix import Mix

_LEAST_DROP = 0.05
"""Drop, in percentage points, that stands for none: no SQNR is high enough for none at all."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Measurements of one int8 model.

    measure: name of the measure of accuracy. accuracy: its value: top-1 or agreement in per cent, a metric in
    its unit, or SQNR in dB. reference: the value of the float model; None if the accuracy itself compares
    with float. sqnr_db: SQNR of the outputs against float, in dB. latency_ms: milliseconds of a call, as the
    latency of plain int8 times the ratio to it, for which both run in turns. weight_bytes: of all constants.
    lower_is_better: whether the accuracy is better the lower it is, as a perplexity is. drop_error: half of
    the 95 % interval of the drop, in percentage points; None for a metric, of which nothing is known.

    >>> Figures("top-1", 75.5, 76.25, sqnr_db=28.0, latency_ms=3.0, weight_bytes=1000).drop
    0.75
    """

    measure: str
    accuracy: float
    reference: float | None
    sqnr_db: float
    latency_ms: float
    weight_bytes: int
    lower_is_better: bool = False
    drop_error: float | None = None

    @property
    def drop(self) -> float | None:
        """Loss against float, in the unit of the accuracy; None without a reference."""
        if self.reference is None:
            return None
        return self.accuracy - self.reference if self.lower_is_better else self.reference - self.accuracy

    @property
    def merit(self) -> tuple[float, float]:
        """Key to compare accuracies by, higher is better; SQNR decides between equal accuracies."""
        return (-self.accuracy if self.lower_is_better else self.accuracy), self.sqnr_db


@dataclass(frozen=True, slots=True)
class Goal:
    """Limits that the result of `tune` has to keep to; None leaves a figure free.

    max_drop: largest loss, in percentage points of top-1, or of agreement without labels, or in units of the
    metric that was asked for. min_metric: lowest value of that metric. min_sqnr_db: lowest SQNR of the
    outputs, in dB. max_latency_ms: longest time of a call, in milliseconds. max_metric: highest value of a
    metric for which lower is better. Raises UsageError for a limit that is not a finite number.

    >>> figures = Figures("top-1", 75.5, 76.25, sqnr_db=28.0, latency_ms=3.0, weight_bytes=1000)
    >>> Goal(max_drop=1.0).met_by(figures), Goal(max_drop=1.0, max_latency_ms=2.5).met_by(figures)
    (True, False)
    """

    max_drop: float | None = None
    min_metric: float | None = None
    min_sqnr_db: float | None = None
    max_latency_ms: float | None = None
    max_metric: float | None = None

    def __post_init__(self) -> None:
        require_limits(self)

    @property
    def asks_for_accuracy(self) -> bool:
        """Whether there is a limit on accuracy; without one, the most accurate fast enough model wins."""
        limits = (self.max_drop, self.min_metric, self.max_metric, self.min_sqnr_db)
        return any(limit is not None for limit in limits)

    def met_by(self, figures: Figures) -> bool:
        """Whether figures keep to all limits."""
        return self.accurate(figures) and self.fast(figures)

    def accurate(self, figures: Figures) -> bool:
        """Whether figures keep to the limits on accuracy."""
        drop = figures.drop
        return (
            (self.max_drop is None or (drop is not None and drop <= self.max_drop))
            and (self.min_metric is None or figures.accuracy >= self.min_metric)
            and (self.max_metric is None or figures.accuracy <= self.max_metric)
            and (self.min_sqnr_db is None or figures.sqnr_db >= self.min_sqnr_db)
        )

    def fast(self, figures: Figures) -> bool:
        """Whether figures keep to the limit on latency."""
        return self.max_latency_ms is None or figures.latency_ms <= self.max_latency_ms


@dataclass(frozen=True)
class Trial:
    """One int8 model of the search: the first `steps` steps of the order, their changes and its figures."""

    steps: int
    mix: Mix
    figures: Figures

    @property
    def keep_float(self) -> tuple[str, ...]:
        """Names of the nodes that this trial keeps in float in addition."""
        return self.mix.keep_float

    @property
    def int16(self) -> tuple[str, ...]:
        """Names of the nodes whose results this trial makes int16 in addition."""
        return self.mix.int16


@dataclass(frozen=True)
class Found:
    """All trials, by number of steps, the best one that keeps to the goal, or None, and if time was up.

    followed: the goal that was searched for, which the samples can tell.
    """

    trials: tuple[Trial, ...]
    best: Trial | None
    stopped: bool
    followed: Goal


def told_goal(goal: Goal, plain: Figures) -> Goal:
    """The goal that the samples can tell, from the figures of plain int8; the same goal where they can.

    A drop that is smaller than `drop_error` is noise: which samples flip decides whether a model keeps to it.
    Then a model has to keep to the SQNR at which the largest drop that plain int8 may have, by its interval,
    has shrunk to what is allowed. Answers flip in proportion to the amplitude of the noise, since margins
    between classes are about equally often of any small size. A measured drop counts beyond its error.
    """
    error, allowed = plain.drop_error, goal.max_drop
    if allowed is None or error is None or error <= allowed or allowed < 0.0:
        return goal
    largest = max(plain.drop or 0.0, 0.0) + error
    level = plain.sqnr_db + 20.0 * math.log10(largest / max(allowed, _LEAST_DROP))
    return replace(goal, max_drop=allowed + error, min_sqnr_db=max(level, goal.min_sqnr_db or -math.inf))


def pareto(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials that no other beats in both latency and accuracy, the fastest first.

    SQNR decides between equal accuracies.
    """
    kept: list[Trial] = []
    most = (-math.inf, -math.inf)
    for trial in sorted(trials, key=lambda t: (t.figures.latency_ms, *(-x for x in t.figures.merit))):
        if trial.figures.merit > most:
            kept.append(trial)
            most = trial.figures.merit
    return kept


def search(
    steps: Sequence[Mix],
    goal: Goal,
    evaluate: Callable[[int, Mix], Figures],
    out_of_time: Callable[[], bool] = lambda: False,
    interruption: Interruption | None = None,
) -> Found:
    """Measure with more and more of the steps taken, until the goal is met; then with fewer of them.

    evaluate: is given the number of steps and all their changes, and returns what it measured. The number of
    steps doubles until the model is accurate enough; a bisection then looks for fewer. Where only latency
    has a limit, the search finds the most steps that are fast enough. The first trial has no steps and
    is always made; no other is begun once `out_of_time` returns true, and after an interruption. Where the
    samples of the first cannot tell the drop that the goal allows, its `told_goal` takes the goal's place.
    """
    work, completed = _Search(steps, goal, evaluate, out_of_time), False
    with (interruption or Interruption()).during("measuring a model"):
        completed = work.run()
    trials = tuple(work.trials[count] for count in sorted(work.trials))
    return Found(trials, work.best(), not completed, work.goal)


class _Search:
    def __init__(
        self,
        steps: Sequence[Mix],
        goal: Goal,
        evaluate: Callable[[int, Mix], Figures],
        out_of_time: Callable[[], bool],
    ) -> None:
        self._steps = list(steps)
        self.goal = goal
        self._evaluate = evaluate
        self._out_of_time = out_of_time
        self.trials: dict[int, Trial] = {}

    def run(self) -> bool:
        """Search; return whether the search was completed before time was up."""
        low, high = -1, 0
        self.goal = told_goal(self.goal, self._trial(0).figures)
        while not self._enough(high):
            if high == len(self._steps):
                return True
            low, high = high, min(max(2 * high, 1), len(self._steps))
            if self._out_of_time():
                return False
        while high - low > 1:
            if self._out_of_time():
                return False
            middle = (low + high) // 2
            if self._enough(middle):
                high = middle
            else:
                low = middle
        return True

    def best(self) -> Trial | None:
        """Fastest trial that keeps to the goal; without a limit on accuracy the most accurate one."""
        fitting = [trial for trial in self.trials.values() if self.goal.met_by(trial.figures)]
        if not fitting:
            return None
        if self.goal.asks_for_accuracy:
            return min(fitting, key=lambda t: (t.figures.latency_ms, t.steps))
        return max(fitting, key=lambda t: (*t.figures.merit, -t.steps))

    def _enough(self, count: int) -> bool:
        """Whether more steps are not worth a try: accurate enough, or too slow already."""
        figures = self._trial(count).figures
        accurate = self.goal.asks_for_accuracy and self.goal.accurate(figures)
        return accurate or not self.goal.fast(figures)

    def _trial(self, count: int) -> Trial:
        if count not in self.trials:
            mix = Mix.joined(self._steps[:count])
            self.trials[count] = Trial(count, mix, self._evaluate(count, mix))
        return self.trials[count]
