"""Words of the verdict for stages of a repair, by the compiled programs on the runs of the stage."""

from __future__ import annotations

from qglow.report.output_errors import OutputErrors
from qglow.report.score_axes import score_axes
from qglow.report.verdict import BROKEN, GOOD, GOOD_DB, SUSPICIOUS, can_be_judged, word_of
from qglow.tuning.self_check import program_errors
from qglow.tuning.stage import Stage

_CLEARLY_DB = 5.0
"""Decibels over the limit of "good" from which a rehearsal tells that the verdict is good."""


def is_clearly_good(stage: Stage) -> bool:
    """Whether the rehearsal alone tells that the verdict on a stage is good."""
    return stage.sqnr_db >= GOOD_DB + _CLEARLY_DB


def has_worse_word(stage: Stage, other: Stage) -> bool:
    """Whether the verdict on a stage is worse than that on another stage of the same model and runs."""
    return _rank(stage) > 0 and _rank(stage) > _rank(other)


def _rank(stage: Stage) -> int:
    """Badness of the verdict on a stage: 0 for "good"."""
    errors = _errors(stage)
    return (GOOD, SUSPICIOUS, BROKEN).index(word_of(errors)) if can_be_judged(errors) else 0


def _errors(stage: Stage) -> OutputErrors:
    return program_errors(stage.runs, stage.result.graph, stage.program, score_axes(stage.result.source, {}))
