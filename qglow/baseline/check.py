"""Checking a baseline: every model is quantized as its entry says, measured, and held to its figures."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from qglow.artefacts.directory import load_parts
from qglow.artefacts.open_shapes import open_shapes
from qglow.baseline.costs import measure_costs
from qglow.baseline.entries import Entry, Samples
from qglow.baseline.file import load_baseline
from qglow.baseline.verdicts import BaselineReport, Outcome, failure, judge, measure
from qglow.core.batch import batch_of
from qglow.core.errors import InputFileError, QglowError, UndecidedError, UnsupportedError, UsageError
from qglow.core.progress import Phases, Progress
from qglow.profiling.profile import Profile
from qglow.profiling.profile_file import load
from qglow.recipe.loading import load_recipe
from qglow.recipe.schema import Recipe
from qglow.report.comparison_result import Comparison
from qglow.report.evaluation import compare_nodes, compare_outputs, open_evaluation_data
from qglow.report.node_panels import data_movement
from qglow.report.parts import QuantizedParts
from qglow.report.task_metric import data_labels, open_metric
from qglow.runtime.cores import choose_threads
from qglow.toolchain import CompileOptions
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.loaded import LoadedModel, read_model
from qglow.toolchain.profiling import profile_free_model, profile_model
from qglow.toolchain.undecided import UndecidedModel, open_model
from qglow.tuning.quantize import QuantizeOptions, quantize_model

LAYER_SAMPLES = 8
"""Samples that the errors of layers are measured over."""


def check_entries(
    path: Path, names: Sequence[str], options: CompileOptions, progress: Phases | None = None
) -> BaselineReport:
    """Quantize and measure the named entries of a baseline file, or all of them, and judge the figures.

    Raises InputFileError or UsageError for a file or an entry that is wrong, which is no verdict on a model.
    """
    chosen = _chosen(load_baseline(path), names)
    timed = options
    options = replace(options, threads=choose_threads(options.threads))
    checks = [_EntryCheck(entry, path.parent, options, timed, progress) for entry in chosen]
    return BaselineReport(path, tuple(check.timed_outcome() for check in checks))


def _chosen(found: Sequence[Entry], names: Sequence[str]) -> list[Entry]:
    known = [entry.name for entry in found]
    for name in names:
        if name not in known:
            nearest = get_close_matches(name, known, 1)
            hint = f"did you mean '{nearest[0]}'?" if nearest else f"there are {', '.join(known)}"
            raise UsageError(f"the baseline has no entry '{name}'; {hint}")
    return [entry for entry in found if not names or entry.name in names]


@dataclass(frozen=True)
class _EntryCheck:
    """One entry of a baseline file in `folder`, to be quantized and measured.

    timed: the options as they were given, which measurements of latency go by.
    """

    entry: Entry
    folder: Path
    options: CompileOptions
    timed: CompileOptions
    progress: Phases | None

    def timed_outcome(self) -> Outcome:
        """The verdict, and how long it took."""
        start = time.perf_counter()
        found = self.outcome()
        return replace(found, seconds=time.perf_counter() - start)

    def outcome(self) -> Outcome:
        """The verdict. Errors of the entry itself are raised, with its name."""
        entry = self.entry
        try:
            parts = self._quantized()
            assert parts.report is not None
            now = measure(entry, self._comparison(parts), parts.report)
            costs = measure_costs(entry, parts, self.timed)
            found = judge(entry, now if costs is None else costs.added_to(now), costs)
            return self._with_layers(found, parts) if found.has_changed else found
        except UnsupportedError as error:
            return failure(entry, str(error))
        except UndecidedError as error:
            names = ", ".join(f"'{name}'" for name in error.inputs)
            raise UsageError(
                f"{entry.name}: the values of {names} decide shapes or parameters; quantize the model with "
                "them, and name the directory as `quantized`"
            ) from error
        except UsageError as error:
            raise UsageError(f"{entry.name}: {error}") from error
        except InputFileError as error:
            raise InputFileError(f"{entry.name}: {error}") from error

    def _quantized(self) -> QuantizedParts:
        """The int8 model, which has a report."""
        entry = self.entry
        if entry.quantized is None:
            return self._quantized_by_profile() if entry.profile is not None else self._profiled()
        parts = load_parts(self.folder / entry.quantized)
        if parts.report is None:
            raise UsageError(f"{self.folder / entry.quantized} has no report; quantize the model again")
        return parts

    def _quantized_by_profile(self) -> QuantizedParts:
        entry = self.entry
        assert entry.profile is not None
        profile = load(self.folder / entry.profile)
        place = profile.model.required if entry.model is None else self.folder / entry.model
        return self._quantized_by(read_model(place, profile.shapes, values=profile.model.values), profile)

    def _profiled(self) -> QuantizedParts:
        """The model of the entry, profiled over its calibration data and quantized."""
        entry, recipe = self.entry, self._recipe() or Recipe()
        assert entry.model is not None and entry.calibration is not None
        model = open_model(self.folder / entry.model)
        calibration = CalibrationSamples(
            self._located(entry.calibration), entry.calibration.select, entry.calibration.samples
        )
        told = self._told("profiling")
        if isinstance(model, UndecidedModel):
            profile = profile_free_model(
                model, calibration, recipe=recipe, options=self.options, progress=told
            )
            model = model.in_profile(profile)
        else:
            profile = profile_model(model, calibration, recipe=recipe, options=self.options, progress=told)
        return self._quantized_by(model, profile, calibration)

    def _quantized_by(
        self, model: LoadedModel, profile: Profile, calibration: CalibrationSamples | None = None
    ) -> QuantizedParts:
        """The model by the entry's recipe, or as `qglow quantize` makes it by default, with repairs."""
        recipe = self._recipe()
        options = QuantizeOptions(repair=recipe is None, calibration=calibration, code=self.options)
        return quantize_model(model, profile, recipe or Recipe(), options)

    def _comparison(self, parts: QuantizedParts) -> Comparison:
        entry, evaluation = self.entry, self.entry.evaluation
        labels = None if entry.labels is None else self.folder / entry.labels
        metric = None if entry.task_metric is None else open_metric(entry.task_metric, labels)
        shapes = open_shapes(parts)
        opened = open_evaluation_data(
            parts,
            self._located(evaluation),
            self._recipe(),
            evaluation.select,
            evaluation.samples,
            data_labels(metric, labels),
            shapes,
        )
        told = self._told("comparing")
        options = self.options if entry.target is None else replace(self.options, isa=entry.target)
        return compare_outputs(parts, opened, metric=metric, options=options, shapes=shapes, progress=told)

    def _with_layers(self, outcome: Outcome, parts: QuantizedParts) -> Outcome:
        """The outcome with the errors of the layers over the first samples, on this processor."""
        evaluation, recipe = self.entry.evaluation, self._recipe()
        most = max(LAYER_SAMPLES, batch_of(parts.shapes))
        samples = most if evaluation.samples is None else min(most, evaluation.samples)
        try:
            shapes = open_shapes(parts)
            opened = open_evaluation_data(
                parts, self._located(evaluation), recipe, evaluation.select, samples, shapes=shapes
            )
            found = compare_nodes(parts, opened, options=self.options, shapes=shapes)
        except QglowError as error:
            return replace(outcome, warnings=(*outcome.warnings, f"errors of the layers: {error}"))
        # What only moves elements shows the error of what it moves once more.
        moving = {node.name for node in parts.int8.nodes if data_movement(node)}
        layers = tuple(layer for layer in found.layers if layer.node not in moving)
        return replace(outcome, layers=replace(found, layers=layers))

    def _recipe(self) -> Recipe | None:
        return None if self.entry.recipe is None else load_recipe(self.folder / self.entry.recipe)

    def _located(self, samples: Samples) -> str:
        """Data beside the baseline file; a function is found as everywhere else."""
        is_function = re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", samples.data)
        return samples.data if is_function else str(self.folder / samples.data)

    def _told(self, what: str) -> Progress | None:
        return None if self.progress is None else self.progress(f"{self.entry.name}: {what}")
