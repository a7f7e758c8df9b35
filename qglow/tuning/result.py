"""Result of tuning: the trials, the best of them, and its recipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from qglow.core.errors import ComparisonFailed
from qglow.core.files import write_atomically
from qglow.recipe.schema import Recipe
from qglow.tuning.mix import with_mix
from qglow.tuning.search import Goal, Trial, pareto
from qglow.tuning.sections import goal_text, recipe_comments


@dataclass(frozen=True)
class Tuning:
    """Result of `tune`.

    trials: all models that were measured, by number of steps; the first is plain int8. best: the fastest
    trial that keeps to the goal (without a limit on accuracy: the most accurate one), or None. stopped:
    whether time was up. data: name of the data that was measured on. samples: number of its samples.
    """

    goal: Goal
    trials: tuple[Trial, ...]
    best: Trial | None
    stopped: bool
    data: str
    samples: int
    _base: Recipe = field(repr=False)

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
        raise ComparisonFailed(
            f"no recipe was found with {goal_text(self.goal)}: the best {figures.measure} is "
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
