"""Mixed precision: the nodes that have to be int16 or float so that an int8 model keeps to a goal."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from qglow.api.data import Data, Progress, data_name, open_samples, start
from qglow.api.model import Model
from qglow.api.quantized import QuantizedModel
from qglow.api.reconstruction import CalibrationRuns, CalibrationSamples
from qglow.core.errors import ComparisonFailed, UsageError
from qglow.core.files import sha256_hex, write_atomically
from qglow.core.version import __version__
from qglow.kernels.isa import select_isa
from qglow.profiling.datasets import DataSet
from qglow.profiling.profile import Profile
from qglow.profiling.samples import DataDigest, Sample
from qglow.quantization.report import constant_bytes
from qglow.recipe.schema import Recipe
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.runner import real_types
from qglow.report.task_metric import TaskMetric, open_metric
from qglow.runtime.cores import choose_threads
from qglow.toolchain import CompileOptions, compile_graph
from qglow.tuning.mix import Mix, with_mix
from qglow.tuning.needs import widest
from qglow.tuning.order import Step
from qglow.tuning.prediction import ordered_steps, runs_for
from qglow.tuning.search import Figures, Found, Goal, Trial, pareto, search
from qglow.tuning.sections import goal_text, recipe_comments
from qglow.tuning.sensitivity import sensitivity
from qglow.tuning.state import State, load_state, save_state
from qglow.tuning.trials import REMEMBERED, Measurement

Phases = Callable[[str], Progress]
"""Given what is done now, gives what other functions take as `progress`."""


@dataclass(frozen=True)
class Tuning:
    """What `tune` found.

    trials: everything that was measured, by number of steps; the first is plain int8. best: the trial
    that keeps to the goal in the least time (without a limit on accuracy: the most accurate), or None.
    stopped: whether time was up. samples: how many of `data` were measured on.
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
        """The best trial. Raises ComparisonFailed, with what comes closest, where none keeps to the goal."""
        if self.best is not None:
            return self.best
        closest = max(self.trials, key=lambda trial: (trial.figures.accuracy, trial.figures.sqnr_db))
        figures = closest.figures
        reason = "time is up; more with another --time-limit" if self.stopped else "nothing is left to try"
        raise ComparisonFailed(
            f"no recipe was found with {goal_text(self.goal)}: the best {figures.measure} is "
            f"{figures.accuracy:.6g}, in {figures.latency_ms:.3g} ms; {reason}"
        )

    @property
    def recipe(self) -> Recipe:
        """The recipe of the best trial. Raises ComparisonFailed where there is none."""
        return with_mix(self._base, self.require().mix)

    def save_recipe(self, path: str | Path) -> None:
        """Write the recipe, with what it reached as comments, whole or not at all.

        Raises ComparisonFailed where there is none, InputFileError where it cannot be written.
        """
        best, base = self.require(), self.trials[0].figures
        comments = recipe_comments(best, base, self.goal, self.data, self.samples)
        write_atomically(Path(path), comments + self.recipe.to_yaml())


def tune(
    model: Model,
    profile: Profile,
    data: Data,
    goal: Goal,
    *,
    calibration_data: Data | CalibrationSamples,
    recipe: Recipe | None = None,
    effort: str = "fast",
    select: str | None = None,
    samples: int | None = None,
    labels: str | Path | None = None,
    metric: str | Callable[..., float] | None = None,
    time_limit: float | None = None,
    state: str | Path | None = None,
    isa: str | None = None,
    threads: int | None = None,
    progress: Phases | None = None,
    told: Callable[[Trial], None] = lambda trial: None,
) -> Tuning:
    """Find the nodes to keep float or make int16 so that the int8 model keeps to a goal, in least time.

    What each error of int8 does to the outputs is predicted on calibration samples. That, and estimated
    times, give the order in which nodes become int16 or float; how many of them have to is found by measuring
    int8 models on `data`: accuracy by labels, by `metric`, or without either by agreement with float, and
    latency in turns with the model without any of these nodes.
    `data` chooses the result, so that its figures there flatter: measure on other data what counts.

    calibration_data: samples of the profile. recipe, effort: as for `Model.quantize`; what is found adds
    to the recipe's keep_float and rules; with assert_all_quantized it is int16 alone.
    select, samples, labels, metric, isa, threads: as for `compare`.
    time_limit: seconds after which no further model is measured; the first one is in any case. state: a
    file for what was found so far, so that the same call goes on from there; another goal may use it too.
    progress: given what is done, gives what `Model.profile` takes. told: is given every trial.

    Raises UsageError for a goal that cannot apply and for options that do not fit, InputFileError for a state
    of another search, DataError for data that does not fit.
    """
    work = _Tuner(
        model,
        profile,
        goal,
        _calibration(calibration_data),
        CompileOptions(isa=isa, threads=choose_threads(threads)),
        None if metric is None else open_metric(metric),
        progress,
    )
    given = recipe or Recipe()
    if given.preprocessing is None:
        given = replace(given, preprocessing=profile.preprocessing)
    work.check(given)
    opened = open_samples(
        data, real_types(model.inputs), recipe=given, select=select, samples=samples, labels=labels
    )
    deadline = None if time_limit is None else time.monotonic() + time_limit
    return work.run(
        given, effort, opened, data_name(data), None if state is None else Path(state), deadline, told
    )


@dataclass(frozen=True)
class _Tuner:
    model: Model
    profile: Profile
    goal: Goal
    calibration: CalibrationSamples
    options: CompileOptions
    metric: TaskMetric | None
    progress: Phases | None

    def check(self, recipe: Recipe) -> None:
        """Raise UsageError for what cannot be tuned."""
        if self.model.is_quantized:
            raise UsageError(f"{self.model.path} is quantized already: its precision is given")
        if self.goal == Goal():
            raise UsageError("say what to reach: --max-drop, --min-sqnr, --min-metric or --max-latency")
        if self.goal.min_metric is not None and self.metric is None:
            raise UsageError("--min-metric needs --metric")
        if self.metric is not None and self.metric.is_relative:
            self._check_drop(self.metric.name)

    def run(
        self,
        recipe: Recipe,
        effort: str,
        data: DataSet,
        name: str,
        path: Path | None,
        deadline: float | None,
        told: Callable[[Trial], None],
    ) -> Tuning:
        """All of it."""
        about, kept, count = self._about(recipe, effort, data)
        state = State(about) if path is None else load_state(path, about)

        def keep() -> None:
            if path is not None:
                save_state(path, state)

        keep()  # a place that cannot be written is found out before the work, not after it
        base = self._quantized(state.recipe or recipe, Mix(), effort if state.recipe is None else "fast")
        state.recipe = base.recipe
        if state.steps is None:
            state.steps = list(self._predicted(base))
            keep()
        found = self._search(state, base, kept, count, deadline, keep, told)
        return Tuning(self.goal, found.trials, found.best, found.stopped, name, count, state.recipe)

    def _search(
        self,
        state: State,
        base: QuantizedModel,
        data: Iterable[Sample],
        count: int,
        deadline: float | None,
        keep: Callable[[], None],
        told: Callable[[Trial], None],
    ) -> Found:
        assert state.steps is not None
        shapes, threads = self.model.shapes, self.options.threads or 1
        first = compile_graph(base.graph, self.options)
        known = state.figures.get(0)
        reference = OnnxruntimeModel(self.model.path, shapes=shapes, threads=threads)
        measurement = Measurement(
            reference, data, self.metric, first, None if known is None else known.latency_ms
        )
        clock = _Clock(deadline)

        def evaluate(steps: int, mix: Mix) -> Figures:
            if steps not in state.figures:
                with clock:
                    made = self._quantized(base.recipe, mix) if mix else base
                    program = compile_graph(made.graph, self.options) if mix else first
                    advance = start(self._told(f"measuring with {mix}"), count)
                    state.figures[steps] = measurement.figures(program, constant_bytes(made.graph), advance)
                keep()
            figures = state.figures[steps]
            if figures.reference is None:
                self._check_drop(figures.measure)
            told(Trial(steps, mix, figures))
            return figures

        return search([step.mix for step in state.steps], self.goal, evaluate, clock.out_of_time)

    def _quantized(self, recipe: Recipe, mix: Mix, effort: str = "fast") -> QuantizedModel:
        return self.model.quantize(
            self.profile,
            with_mix(recipe, mix),
            effort=effort,
            calibration_data=self.calibration,
            isa=self.options.isa,
            threads=self.options.threads,
            progress=self._told(f"quantizing with {mix}"),
        )

    def _predicted(self, base: QuantizedModel) -> Sequence[Step]:
        real, int8 = base.float_graph, base.graph
        inputs = CalibrationRuns.of(real, base.recipe, self.calibration)
        runs = inputs.spread(runs_for(real, len(inputs)))
        advance = start(self._told("predicting what each error does"), len(runs))
        found = sensitivity(real, int8, runs, self.options, advance)
        # Only estimates are made of it, which do not depend on how weights are rounded.
        nearest = replace(base.recipe, rounding="nearest", rounding_budget=None)
        wide = self._quantized(nearest, Mix(int16=widest(int8))).graph
        isa, may_float = select_isa(self.options.isa), not base.recipe.assert_all_quantized
        return ordered_steps(self.model.graph, real, int8, wide, found, isa, may_float=may_float)

    def _check_drop(self, measure: str) -> None:
        """Raise UsageError for a limit on what has no figure for float."""
        if self.goal.max_drop is not None:
            raise UsageError(
                f"{measure} compares with the float model, so it cannot drop; "
                "limit --min-sqnr, or --min-metric with a --metric"
            )

    def _about(
        self, recipe: Recipe, effort: str, data: DataSet
    ) -> tuple[dict[str, str], Iterable[Sample], int]:
        """What the search is of; the samples, in memory unless they are too large; and how many they are."""
        calibration = CalibrationRuns.of(self.model.graph, recipe, self.calibration).dataset
        inputs, labels = DataDigest(), hashlib.sha256()
        kept: list[Sample] = []
        count, left = 0, REMEMBERED
        for sample in data:
            inputs.add(sample.inputs)
            labels.update(f"{sample.label},".encode())
            count += 1
            left -= sum(array.nbytes for array in sample.inputs.values())
            if left >= 0:
                kept.append(sample)
        profile = self.profile
        about = {
            "version of qglow": __version__,
            "model": self.model.sha256,
            "shape of the inputs": str(self.model.shapes),
            "profile": f"{profile.fingerprint} {profile.samples} {profile.data.hex} {profile.preprocessing}",
            "recipe": sha256_hex(recipe.to_yaml().encode()),
            "effort": effort,
            "calibration data": calibration.digest().hex,
            "data": inputs.hex,
            "set of labels": labels.hexdigest(),
            "metric": "" if self.metric is None else self.metric.name,
            "instruction set": select_isa(self.options.isa).name,
            "number of threads": str(self.options.threads),
        }
        return about, kept if left >= 0 else data, count

    def _told(self, what: str) -> Progress | None:
        return None if self.progress is None else self.progress(what)


class _Clock:
    """Times trials, so that none is begun that would not be done before a deadline."""

    def __init__(self, deadline: float | None) -> None:
        self._deadline = deadline
        self._longest = self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self._longest = max(self._longest, time.monotonic() - self._begun)

    def out_of_time(self) -> bool:
        """Whether another trial as long as the longest would be late."""
        return self._deadline is not None and time.monotonic() + self._longest > self._deadline


def _calibration(data: Data | CalibrationSamples) -> CalibrationSamples:
    return data if isinstance(data, CalibrationSamples) else CalibrationSamples(data)
