"""Checking models against the accuracy that they are known to reach."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from qglow.api.data import Progress
from qglow.api.evaluation import compare
from qglow.api.model import load_model
from qglow.api.profiles import load_profile
from qglow.api.quantized import QuantizedModel, load_quantized
from qglow.api.reconstruction import CalibrationSamples
from qglow.core.errors import InputFileError, UnsupportedError, UsageError
from qglow.quantization.report import QuantizationReport
from qglow.recipe.loading import load_recipe
from qglow.recipe.schema import Recipe
from qglow.report.baseline import BaselineReport, Entry, Outcome, Samples, failure, judge, measure
from qglow.report.baseline_file import load_baseline, update_baseline
from qglow.runtime.cores import choose_threads


def check_baseline(
    path: str | Path,
    *,
    entries: Sequence[str] = (),
    update: bool = False,
    isa: str | None = None,
    threads: int | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> BaselineReport:
    """Quantize and measure every model of a baseline file, and hold it to the figures there.

    entries: only these. update: write the new figures into the file. progress: given what is done, gives
    what `Model.profile` takes. isa, threads: as there. The report's `require()` raises RegressionError
    where there is one.

    Raises InputFileError or UsageError for a file or an entry that is wrong, which is no verdict on a model.
    """
    path = Path(path)
    chosen = _chosen(load_baseline(path), entries)
    target = _Target(isa, choose_threads(threads))
    outcomes = tuple(_outcome(entry, path.parent, target, progress) for entry in chosen)
    if update:
        update_baseline(path, outcomes)
    return BaselineReport(path, outcomes)


@dataclass(frozen=True)
class _Target:
    """What programs are compiled for, and on how many threads they run."""

    isa: str | None
    threads: int


def _chosen(found: Sequence[Entry], names: Sequence[str]) -> list[Entry]:
    known = [entry.name for entry in found]
    for name in names:
        if name not in known:
            nearest = get_close_matches(name, known, 1)
            hint = f"did you mean '{nearest[0]}'?" if nearest else f"there are {', '.join(known)}"
            raise UsageError(f"the baseline has no entry '{name}'; {hint}")
    return [entry for entry in found if not names or entry.name in names]


def _outcome(
    entry: Entry, folder: Path, target: _Target, progress: Callable[[str], Progress] | None
) -> Outcome:
    def told(what: str) -> Progress | None:
        return None if progress is None else progress(f"{entry.name}: {what}")

    try:
        model, report = _quantized(entry, folder, target, told("profiling"))
        comparison = compare(
            model,
            _located(entry.evaluation, folder),
            recipe=_recipe(entry, folder),
            select=entry.evaluation.select,
            samples=entry.evaluation.samples,
            labels=None if entry.labels is None else folder / entry.labels,
            metric=entry.task_metric,
            isa=target.isa,
            threads=target.threads,
            progress=told("comparing"),
        )
        return judge(entry, measure(entry, comparison, report))
    except UnsupportedError as error:
        return failure(entry, str(error))
    except UsageError as error:
        raise UsageError(f"{entry.name}: {error}") from error
    except InputFileError as error:
        raise InputFileError(f"{entry.name}: {error}") from error


def _quantized(
    entry: Entry, folder: Path, target: _Target, progress: Progress | None
) -> tuple[QuantizedModel, QuantizationReport]:
    if entry.quantized is not None:
        model = load_quantized(folder / entry.quantized)
        if model.report is None:
            raise UsageError(f"{folder / entry.quantized} has no report; quantize the model again")
        return model, model.report
    recipe = _recipe(entry, folder) or Recipe()
    if entry.profile is not None:
        profile = load_profile(folder / entry.profile)
        path = profile.model.path if entry.model is None else folder / entry.model
        made = load_model(path, profile.shapes).quantize(profile, recipe)
    else:
        assert entry.model is not None and entry.calibration is not None
        loaded = load_model(folder / entry.model)
        calibration = entry.calibration
        profile = loaded.profile(
            _located(calibration, folder),
            select=calibration.select,
            samples=calibration.samples,
            recipe=recipe,
            isa=target.isa,
            threads=target.threads,
            progress=progress,
        )
        made = loaded.quantize(
            profile,
            recipe,
            calibration_data=CalibrationSamples(
                _located(calibration, folder), calibration.select, calibration.samples
            ),
            isa=target.isa,
            threads=target.threads,
        )
    assert made.report is not None
    return made, made.report


def _located(samples: Samples, folder: Path) -> str:
    """Data beside the baseline file; a function is found as everywhere else."""
    is_function = re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", samples.data)
    return samples.data if is_function else str(folder / samples.data)


def _recipe(entry: Entry, folder: Path) -> Recipe | None:
    return None if entry.recipe is None else load_recipe(folder / entry.recipe)
