"""qglow check: models against the accuracy that they are known to reach, for CI."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from qglow.api import BaselineReport, Progress, check_baseline
from qglow.cli.options import IsaOption, ThreadsOption
from qglow.cli.output import say, show, showing_progress
from qglow.core.errors import InputFileError
from qglow.core.files import write_atomically
from qglow.report.baseline_sections import baseline_section
from qglow.report.document import Document
from qglow.report.junit import to_junit
from qglow.report.markdown import to_markdown

SUMMARY = "GITHUB_STEP_SUMMARY"
"""GitHub Actions sets it to the file of the job's summary page."""


def check(
    baseline: Annotated[
        Path, typer.Option("--baseline", metavar="FILE", help="The models and their figures, as YAML.")
    ],
    update: Annotated[
        bool, typer.Option("--update", help="Write the figures into the file; nothing is a regression then.")
    ] = False,
    entry: Annotated[
        list[str] | None, typer.Option("--entry", metavar="NAME", help="Only this one. Repeatable.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdicts as JUnit XML.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write the table as Markdown.")
    ] = None,
    isa: IsaOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Hold models to a baseline of accuracy, coverage and size.

    Quantizes and measures every model of the file. Exits with 5 where one is worse than the file
    allows. On GitHub Actions the table goes to the job's summary too.
    """
    with contextlib.ExitStack() as stack:

        def progress(what: str) -> Progress:
            stack.close()
            return stack.enter_context(showing_progress(what))

        report = check_baseline(
            baseline, entries=entry or (), update=update, isa=isa, threads=threads, progress=progress
        )
    _write(report, junit, markdown)
    show(baseline_section(report))
    if update:
        say(f"{baseline}: updated")
    else:
        report.require()


def _write(report: BaselineReport, junit: Path | None, markdown: Path | None) -> None:
    section = baseline_section(report)
    text = to_markdown(Document("qglow check", (section,)))
    if junit is not None:
        write_atomically(junit, to_junit(report))
    if markdown is not None:
        write_atomically(markdown, text)
    summary = os.environ.get(SUMMARY)
    if not summary:
        return
    try:
        with open(summary, "a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise InputFileError(f"cannot append to {summary} ({SUMMARY}): {error.strerror or error}") from error
