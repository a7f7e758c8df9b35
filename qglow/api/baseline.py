"""Baselines: models checked against the accuracy that they are known to reach."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from qglow.api.keywords import CheckKeywords
from qglow.api.options import CheckOptions
from qglow.baseline.check import check_entries
from qglow.baseline.file import update_baseline
from qglow.baseline.verdicts import BaselineReport
from qglow.core.keywords import taking
from qglow.core.progress import Phases
from qglow.toolchain import CompileOptions


@taking(CheckOptions)
def check_baseline(
    path: str | Path, *, progress: Phases | None = None, **options: Unpack[CheckKeywords]
) -> BaselineReport:
    """Quantize and measure the models of a baseline file and compare them with the figures in it.

    entries: names of the entries to check (default: all). update: write the new figures into the file.
    progress: is called with the name of each phase and returns the `progress` of `Model.profile`. isa,
    threads: as for `Model.profile`. The report's `require()` raises RegressionError if there is a regression,
    `require(baseline=True)` also if an entry has no figures, or figures over another number of samples.

    Raises InputFileError or UsageError for a wrong file or entry, which is no verdict on a model.
    """
    path = Path(path)
    code = CompileOptions(isa=options["isa"], threads=options["threads"])
    report = check_entries(path, options["entries"], code, progress)
    if options["update"]:
        update_baseline(path, report.outcomes)
    return report
