"""The search for the fewest steps away from int8 that reach a goal: predicted order, measured steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from qglow.tuning.mix import Mix


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of one int8 model.

    measure: what the accuracy is. accuracy: higher is better: top-1 or agreement in per cent, a metric, or
    SQNR in dB. reference: that of the float model; None where the accuracy itself compares with float.
    sqnr_db: of the outputs against float. latency_ms: a call, as the ratio to the program without any
    steps, times the latency of that. weight_bytes: of all its constants.
    """

    measure: str
    accuracy: float
    reference: float | None
    sqnr_db: float
    latency_ms: float
    weight_bytes: int

    @property
    def drop(self) -> float | None:
        """What it loses against float, in the unit of the accuracy; None without a reference."""
        return None if self.reference is None else self.reference - self.accuracy


@dataclass(frozen=True, slots=True)
class Goal:
    """What the result of `tune` has to keep to; None leaves a figure free.

    max_drop: points (per cent) of top-1, or of agreement without labels, or units of the metric that was
    asked for. min_metric: of that metric. min_sqnr_db: of the outputs. max_latency_ms: a call.
    """

    max_drop: float | None = None
    min_metric: float | None = None
    min_sqnr_db: float | None = None
    max_latency_ms: float | None = None

    @property
    def asks_for_accuracy(self) -> bool:
        """Whether accuracy has a limit; else the most accurate of the fast enough is wanted."""
        return (self.max_drop, self.min_metric, self.min_sqnr_db) != (None, None, None)

    def met_by(self, figures: Figures) -> bool:
        """Whether figures keep to all of it."""
        return self.accurate(figures) and self.fast(figures)

    def accurate(self, figures: Figures) -> bool:
        """Whether figures lose little enough."""
        drop = figures.drop
        return (
            (self.max_drop is None or (drop is not None and drop <= self.max_drop))
            and (self.min_metric is None or figures.accuracy >= self.min_metric)
            and (self.min_sqnr_db is None or figures.sqnr_db >= self.min_sqnr_db)
        )

    def fast(self, figures: Figures) -> bool:
        """Whether figures take little enough time."""
        return self.max_latency_ms is None or figures.latency_ms <= self.max_latency_ms


@dataclass(frozen=True)
class Trial:
    """One trade of time for accuracy: how many steps of the order, what they change, what came out."""

    steps: int
    mix: Mix
    figures: Figures

    @property
    def keep_float(self) -> tuple[str, ...]:
        """Names of the nodes that stay float besides."""
        return self.mix.keep_float

    @property
    def int16(self) -> tuple[str, ...]:
        """Names of the nodes whose results are int16 besides."""
        return self.mix.int16


@dataclass(frozen=True)
class Found:
    """Every trial, by number of steps; the best that keeps to the goal, or None; whether time was up."""

    trials: tuple[Trial, ...]
    best: Trial | None
    stopped: bool


def pareto(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that no other beats in both time and accuracy, the fastest first.

    Between equal accuracies SQNR decides.
    """
    kept: list[Trial] = []
    most = (-math.inf, -math.inf)
    for trial in sorted(trials, key=lambda t: (t.figures.latency_ms, *(-x for x in _accuracy(t)))):
        if _accuracy(trial) > most:
            kept.append(trial)
            most = _accuracy(trial)
    return kept


def search(
    steps: Sequence[Mix],
    goal: Goal,
    evaluate: Callable[[int, Mix], Figures],
    out_of_time: Callable[[], bool] = lambda: False,
) -> Found:
    """Measure with more and more of the steps taken, until the goal is met; then with fewer of them.

    `evaluate` is given the number of steps and what they change together. The number of steps doubles
    while what comes out is not accurate enough; a bisection then finds fewer that are. Where only time has
    a limit, it finds the most steps that are fast enough. The first trial has no steps. None is
    begun once `out_of_time` says so, but that one; all that was measured counts.
    """
    work = _Search(steps, goal, evaluate, out_of_time)
    stopped = not work.run()
    return Found(tuple(work.trials[count] for count in sorted(work.trials)), work.best(), stopped)


class _Search:
    def __init__(
        self,
        steps: Sequence[Mix],
        goal: Goal,
        evaluate: Callable[[int, Mix], Figures],
        out_of_time: Callable[[], bool],
    ) -> None:
        self._steps = list(steps)
        self._goal = goal
        self._evaluate = evaluate
        self._out_of_time = out_of_time
        self.trials: dict[int, Trial] = {}

    def run(self) -> bool:
        """Whether it came to its end."""
        low, high = -1, 0
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
        """Of the trials that keep to the goal the fastest; without a limit on accuracy the most accurate."""
        fitting = [trial for trial in self.trials.values() if self._goal.met_by(trial.figures)]
        if not fitting:
            return None
        if self._goal.asks_for_accuracy:
            return min(fitting, key=lambda t: (t.figures.latency_ms, t.steps))
        return max(fitting, key=lambda t: (*_accuracy(t), -t.steps))

    def _enough(self, count: int) -> bool:
        """Whether more steps are not worth a try: accurate enough, or too slow already."""
        figures = self._trial(count).figures
        accurate = self._goal.asks_for_accuracy and self._goal.accurate(figures)
        return accurate or not self._goal.fast(figures)

    def _trial(self, count: int) -> Trial:
        if count not in self.trials:
            mix = Mix.joined(self._steps[:count])
            self.trials[count] = Trial(count, mix, self._evaluate(count, mix))
        return self.trials[count]


def _accuracy(trial: Trial) -> tuple[float, float]:
    return trial.figures.accuracy, trial.figures.sqnr_db
