"""Result of tuning: the trials, the best of them, and its recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qglow.core.errors import ComparisonFailed
from qglow.core.files import write_atomically
from qglow.display.blocks import Section, milliseconds
from qglow.display.frames import frame
from qglow.display.lines import counted
from qglow.display.plain import to_plain
from qglow.display.plots import draw_front
from qglow.display.shown import Shown
from qglow.recipe.schema import Recipe
from qglow.tuning.mix import with_mix
from qglow.tuning.search import Goal, Trial, pareto
from qglow.tuning.sections import accuracy_text, goal_text, recipe_comments, told_text, tuning_section

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class Tuning(Shown):
    """Result of `tune`.

    goal: what was asked for. followed: what was searched for: where the samples cannot tell the drop of the
    goal, an SQNR stands for it. trials: all models that were measured, by number of steps; the first is plain
    int8. best: the fastest trial that keeps to the goal (without a limit on accuracy: the most accurate one),
    or None. stopped: whether time was up. data: name of the data that was measured on. samples: number of its
    samples.
    """

    goal: Goal
    followed: Goal
    trials: tuple[Trial, ...]
    best: Trial | None
    stopped: bool
    data: str
    samples: int
    _base: Recipe

    def __repr__(self) -> str:
        found = "nothing keeps to the goal"
        if self.best is not None:
            figures = self.best.figures
            accuracy = accuracy_text(figures, figures.accuracy)
            found = f"{self.best.mix}, {figures.measure} {accuracy}, {milliseconds(figures.latency_ms)}"
        return f"Tuning({counted(len(self.trials), 'model')} measured for {goal_text(self.goal)}: {found})"

    def _sections(self) -> tuple[Section, ...]:
        return (tuning_section(self.trials, self.best, self.goal),)

    def to_dict(self) -> dict[str, Any]:
        """Goal, trials and what was chosen as what JSON has; infinities and NaN are text."""
        return {
            "goal": to_plain(self.goal),
            "followed": to_plain(self.followed),
            "trials": to_plain(self.trials),
            "best": to_plain(self.best),
            "stopped": self.stopped,
            "data": self.data,
            "samples": self.samples,
        }

    def to_frame(self) -> pandas.DataFrame:
        """One row for each trial, by number of steps. Raises UsageError if pandas is not installed."""
        columns = (
            "steps",
            "int16",
            "in_float",
            "float16",
            "bfloat16",
            "measure",
            "accuracy",
            "sqnr_db",
            "latency_ms",
            "weight_bytes",
        )
        rows = (
            (x.steps, len(x.mix.int16), len(x.mix.keep_float), len(x.mix.float16), len(x.mix.bfloat16))
            + (x.figures.measure, x.figures.accuracy, x.figures.sqnr_db)
            + (x.figures.latency_ms, x.figures.weight_bytes)
            for x in self.trials
        )
        return frame(columns, rows)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw accuracy over latency: all trials, those that no other beats, and the one that was chosen.

        axes: where to draw (default: a new figure). Raises UsageError if matplotlib is not installed.
        """
        front = [_point(trial) for trial in self.pareto()]
        chosen = None if self.best is None else _point(self.best)
        points = [_point(trial) for trial in self.trials]
        labels = "milliseconds a call", self.trials[0].figures.measure
        return draw_front(axes, points, front, chosen, labels)

    def pareto(self) -> list[Trial]:
        """The trials that no other beats in both latency and accuracy, the fastest first."""
        return pareto(self.trials)

    def require(self) -> Trial:
        """Return the best trial. Raises ComparisonFailed, which names the closest one, if there is none."""
        if self.best is not None:
            return self.best
        closest = max(self.trials, key=lambda trial: trial.figures.merit)
        figures = closest.figures
        reason = "time is up; more with another `time_limit`" if self.stopped else "nothing is left to try"
        told = told_text(self.goal, self.trials[0].figures)
        wanted = f"{goal_text(self.goal)} ({told})" if told else goal_text(self.goal)
        raise ComparisonFailed(
            f"no recipe was found with {wanted}: the best {figures.measure} is "
            f"{figures.accuracy:.6g}, in {figures.latency_ms:.3g} ms; {reason}"
        )

    @property
    def recipe(self) -> Recipe:
        """The recipe of the best trial. Raises ComparisonFailed if there is none."""
        return with_mix(self._base, self.require().mix)

    def save_recipe(self, path: str | Path) -> None:
        """Write the recipe, with what it reached as comments, whole or not at all.

        Raises ComparisonFailed if there is none, InputFileError if it cannot be written.
        """
        best, base = self.require(), self.trials[0].figures
        comments = recipe_comments(best, base, self.goal, self.data, self.samples)
        write_atomically(Path(path), comments + self.recipe.to_yaml())


def _point(trial: Trial) -> tuple[float, float]:
    return trial.figures.latency_ms, trial.figures.accuracy
