"""Mixed precision: nodes that have to be int16 or float, also of 16 bits, so that int8 keeps to a goal."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qglow.core.errors import UsageError
from qglow.core.files import sha256_hex
from qglow.core.interruption import Interrupted, Interruption
from qglow.core.jobs import Jobs
from qglow.core.progress import Phases, Progress, start
from qglow.core.version import __version__
from qglow.kernels.emit.target import VectorTarget
from qglow.profiling.datasets import DataSet
from qglow.profiling.profile import Profile
from qglow.profiling.samples import DataDigest, Sample
from qglow.quantization.report import constant_bytes, is_int8
from qglow.recipe.schema import Recipe
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.parts import QuantizedParts
from qglow.report.score_axes import score_axes
from qglow.report.task_metric import TaskMetric, check_side
from qglow.report.without_tail import float_file
from qglow.targets import capabilities
from qglow.targets.registry import select_target
from qglow.toolchain import CompileOptions, compile_graph
from qglow.toolchain.calibration import CalibrationRuns, CalibrationSamples
from qglow.toolchain.loaded import LoadedModel
from qglow.tuning.effort import FAST
from qglow.tuning.halves import Half, faster_halves
from qglow.tuning.mix import Mix, with_mix
from qglow.tuning.needs import widest
from qglow.tuning.order import Promotion
from qglow.tuning.prediction import ordered_steps, runs_for
from qglow.tuning.quantize import QuantizeOptions, quantize_model
from qglow.tuning.result import Tuning
from qglow.tuning.search import Figures, Found, Goal, Trial, search
from qglow.tuning.sensitivity import sensitivity
from qglow.tuning.state import State, load_state, save_state
from qglow.tuning.trials import REMEMBERED, Measurement


@dataclass(frozen=True)
class Tuner:
    """Searches for the nodes that have to be int16 or float so that an int8 model reaches a goal.

    recipe, effort: how plain int8 is quantized, repaired as by default; the search adds nodes in other
    precisions to the recipe that this gives.
    calibration: samples of the profile. progress: is called with the name of each phase of work. jobs:
    where networks run for the predictions (default: here).

    The constructor raises UsageError for a model that is quantized already and for a goal that cannot apply.
    """

    model: LoadedModel
    profile: Profile
    goal: Goal
    recipe: Recipe
    effort: str
    calibration: CalibrationSamples
    options: CompileOptions
    metric: TaskMetric | None
    progress: Phases | None
    jobs: Jobs | None = None

    def __post_init__(self) -> None:
        if self.model.is_quantized:
            raise UsageError(f"{self.model.place} is quantized already: its precision is given")
        if self.goal == Goal():
            limits = "`max_drop`, `min_sqnr_db`, `min_metric`, `max_metric` or `max_latency_ms`"
            raise UsageError(f"say what to reach: {limits}")
        for field in ("min_metric", "max_metric"):
            if getattr(self.goal, field) is not None and self.metric is None:
                raise UsageError(f"{field} needs `metric`", field=field)
        if self.metric is not None:
            check_side(
                self.metric.name, self.metric.lower_is_better, self.goal.min_metric, self.goal.max_metric
            )
        if self.metric is not None and self.metric.is_relative:
            self._check_drop(self.metric.name)

    def run(
        self,
        data: DataSet,
        name: str,
        *,
        time_limit: float | None = None,
        path: Path | None = None,
        told: Callable[[Trial], None] = lambda trial: None,
        interrupted: Interrupted | None = None,
    ) -> Tuning:
        """Search, measuring every trial on `data`, which reports call `name`.

        time_limit: seconds after which no further model is measured. path: a file that keeps the results, so
        that an interrupted search can continue. told: is called with every trial. interrupted: is told
        where the user ends the search, which then has the trials until then. Raises InputFileError for the
        file of another search, and for one that cannot be read or written.
        """
        deadline = None if time_limit is None else time.monotonic() + time_limit
        about, kept, count = self._about(data)
        state = State(about) if path is None else load_state(path, about)

        def keep() -> None:
            if path is not None:
                save_state(path, state)

        keep()  # so that a file that cannot be written raises before the work, not after it
        if state.recipe is None:
            base = self._quantized(self.recipe, Mix(), self.effort, repair=True)
        else:
            base = self._quantized(state.recipe, Mix())
        state.recipe = base.recipe
        if state.steps is None:
            state.steps = list(self._predicted(base))
            keep()
        found = self._search(state, base, kept, count, deadline, keep, told, interrupted)
        return Tuning(
            self.goal, found.followed, found.trials, found.best, found.stopped, name, count, state.recipe
        )

    def _search(
        self,
        state: State,
        base: QuantizedParts,
        data: Iterable[Sample],
        count: int,
        deadline: float | None,
        keep: Callable[[], None],
        told: Callable[[Trial], None],
        interrupted: Interrupted | None,
    ) -> Found:
        assert state.steps is not None
        shapes, threads = self.model.shapes, self.options.threads or 1
        first = compile_graph(base.int8, self.options)
        known = state.figures.get(0)
        reference = OnnxruntimeModel(float_file(base), shapes=shapes, threads=threads)
        known_ms = None if known is None else known.latency_ms
        scores = score_axes(base.real, reference.open_output_axes)
        measurement = Measurement(reference, data, self.metric, first, known_ms, scores)
        clock = _Clock(deadline)

        def evaluate(steps: int, mix: Mix) -> Figures:
            if steps not in state.figures:
                with clock:
                    made = self._quantized(base.recipe, mix) if mix else base
                    program = compile_graph(made.int8, self.options) if mix else first
                    advance = start(self._told(f"measuring with {mix}"), count)
                    state.figures[steps] = measurement.figures(program, constant_bytes(made.int8), advance)
                keep()
            figures = state.figures[steps]
            if figures.reference is None:
                self._check_drop(figures.measure)
            told(Trial(steps, mix, figures))
            return figures

        steps = [step.mix for step in state.steps]
        return search(steps, self.goal, evaluate, clock.out_of_time, Interruption(interrupted))

    def _quantized(
        self, recipe: Recipe, mix: Mix, effort: str = FAST, repair: bool = False
    ) -> QuantizedParts:
        options = QuantizeOptions(
            effort=effort,
            repair=repair,
            calibration=self.calibration,
            code=self.options,
            jobs=self.jobs,
            progress=self._told(f"quantizing with {mix}"),
        )
        return quantize_model(self.model, self.profile, with_mix(recipe, mix), options)

    def _predicted(self, base: QuantizedParts) -> Sequence[Promotion]:
        real, int8 = base.real, base.int8
        inputs = CalibrationRuns.of(real, base.recipe, self.calibration)
        runs = inputs.spread(runs_for(real, len(inputs)))
        advance = start(self._told("predicting what each error does"), len(runs))
        found = sensitivity(real, int8, runs, self.options, advance, self.jobs)
        # Only costs are estimated from this graph, and they do not depend on how weights are rounded.
        nearest = replace(base.recipe, rounding="nearest", rounding_budget=None)
        wide = self._quantized(nearest, Mix(int16=widest(int8))).int8
        machine = capabilities.machine(select_target(self.options.isa))
        may_float = not base.recipe.assert_all_quantized
        halves = self._halves(base, nearest, machine) if may_float else {}
        return ordered_steps(
            self.model.graph, real, int8, wide, found, machine, may_float=may_float, halves=halves
        )

    def _halves(self, base: QuantizedParts, recipe: Recipe, machine: VectorTarget) -> dict[str, Half]:
        """Types of the int8 nodes that are faster in 16-bit floats than in float32."""
        names = [node.name for node in base.int8.nodes if is_int8(node)]
        seen = self.profile.check_matches(self.model.with_profiled_batch().graph)
        return faster_halves(base.real, names, lambda mix: self._quantized(recipe, mix).int8, seen, machine)

    def _check_drop(self, measure: str) -> None:
        """Raise UsageError if the drop is limited but the measure has no value for the float model."""
        if self.goal.max_drop is not None:
            raise UsageError(
                f"{measure} compares with the float model, so it cannot drop; "
                "limit `min_sqnr_db`, or `min_metric` or `max_metric` with a `metric`"
            )

    def _about(self, data: DataSet) -> tuple[dict[str, str], Iterable[Sample], int]:
        """Return a description of the search for its state file, the samples and their number.

        The samples are returned as a list, unless they take more than `REMEMBERED` bytes.
        """
        calibration = CalibrationRuns.of(self.model.graph, self.recipe, self.calibration).dataset
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
            "recipe": sha256_hex(self.recipe.to_yaml().encode()),
            "effort": self.effort,
            "calibration data": calibration.digest().hex,
            "data": inputs.hex,
            "set of labels": labels.hexdigest(),
            "metric": "" if self.metric is None else self.metric.identity,
            "instruction set": select_target(self.options.isa).description.name,
            "number of threads": str(self.options.threads),
        }
        return about, kept if left >= 0 else data, count

    def _told(self, what: str) -> Progress | None:
        return None if self.progress is None else self.progress(what)


class _Clock:
    """Times trials, so that no trial starts that could not end before the deadline."""

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
