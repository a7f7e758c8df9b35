"""qglow check: models against the accuracy that they are known to reach, for CI."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.api.options import MODEL, OUTPUT, CustomOperatorOptions, EntryOptions, RunOptions
from qglow.cli.output import say, show, showing_progress, warn
from qglow.core.errors import InputFileError, UsageError
from qglow.core.options import Writes, option

if TYPE_CHECKING:
    from qglow.api import BaselineReport
    from qglow.core.progress import Progress

EXAMPLES = ("qglow check --baseline accuracy.yaml --junit verdicts.xml",)
SUMMARY = "GITHUB_STEP_SUMMARY"
"""GitHub Actions sets it to the file of the job's summary page."""


@dataclass(frozen=True, kw_only=True)
class _BaselineFile:
    baseline: Path = option(
        help="YAML file with the models and their figures",
        group=MODEL,
        metavar="FILE",
        writes=Writes.UPDATE,
    )


@dataclass(frozen=True, kw_only=True)
class BaselineOptions(EntryOptions, CustomOperatorOptions, _BaselineFile):
    """Options of what is checked."""

    require_baseline: bool = option(
        False,
        "Fail for a model that the file has no figures of, or figures over another number of samples",
        group=MODEL,
    )


@dataclass(frozen=True, kw_only=True)
class VerdictOptions:
    """Options of where verdicts go."""

    junit: Path | None = option(
        None, "Write the verdicts, as JUnit XML", group=OUTPUT, metavar="FILE", writes=Writes.FILE
    )
    markdown: Path | None = option(
        None,
        "Write verdicts, changes and the worst layers, as Markdown",
        group=OUTPUT,
        metavar="FILE",
        writes=Writes.FILE,
    )


def check(models: BaselineOptions, running: RunOptions, verdicts: VerdictOptions) -> None:
    """Hold models to a baseline of accuracy, coverage and size, and to limits of latency and memory.

    Quantizes and measures every model of the file. Exits with 5 if one is worse than the file allows.
    A model without figures in the file passes as new, and another number of samples than that of the
    baseline is a warning, unless --require-baseline refuses both.
    On GitHub Actions the Markdown goes to the job's summary too.
    """
    from qglow.api import check_baseline
    from qglow.baseline.changes import latency_section
    from qglow.baseline.sections import baseline_section

    if models.update and models.require_baseline:
        raise UsageError("--update writes the figures that --require-baseline asks for; give one of them")
    with contextlib.ExitStack() as stack:

        def progress(what: str) -> Progress:
            stack.close()
            return stack.enter_context(showing_progress(what))

        report = check_baseline(
            models.baseline,
            entries=models.entries,
            update=models.update,
            isa=running.isa,
            threads=running.threads,
            progress=progress,
        )
    _write(report, verdicts, models.require_baseline)
    show(baseline_section(report), *latency_section(report))
    warn(report.warnings)
    if models.update:
        say(f"{models.baseline}: updated")
    else:
        report.require(baseline=models.require_baseline)


def _write(report: BaselineReport, verdicts: VerdictOptions, require_baseline: bool) -> None:
    from qglow.baseline.changes import summary_sections
    from qglow.baseline.junit import to_junit
    from qglow.core.files import write_atomically
    from qglow.display.document import Document
    from qglow.display.markdown import to_markdown

    text = to_markdown(Document("qglow check", summary_sections(report)))
    if verdicts.junit is not None:
        write_atomically(verdicts.junit, to_junit(report, require_baseline))
    if verdicts.markdown is not None:
        write_atomically(verdicts.markdown, text)
    summary = os.environ.get(SUMMARY)
    if not summary:
        return
    try:
        with open(summary, "a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise InputFileError(f"cannot append to {summary} ({SUMMARY}): {error.strerror or error}") from error
