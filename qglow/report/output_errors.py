"""Errors of every output of an int8 model against the float model, on a few samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from qglow.core.types import Array
from qglow.metrics.probabilities import are_probabilities, centred_logarithms
from qglow.report.metrics import ErrorAccumulator
from qglow.report.score_axes import ScoreAxis, sample_scores


@dataclass(frozen=True, slots=True)
class OutputError:
    """One output of the int8 model against the float model.

    sqnr_db: of reals, over all elements that are finite in both; None for integers and for an output that is
    zero wherever the float model gives a finite number, which no error can be related to. agreement: of
    integers the share of equal elements, of scores of classes that of equal best classes, 0 to 1; else
    None. non_finite: elements that are NaN or infinite in only one of both. max_abs: largest difference.
    beyond_chance: Cohen's kappa of the best classes at positions: 1 where all are equal, 0 where they agree
    as often as the frequencies of the classes alone would, such as where int8 always has the most frequent
    one; None for other outputs and where too few positions have another class than the most frequent one.
    probabilities: whether it has shares of classes at positions. logarithms_db: SQNR of the logarithms of
    probabilities [N, classes], which is that of the scores that a softmax makes them of; None for others.
    """

    name: str
    sqnr_db: float | None
    agreement: float | None
    non_finite: int
    max_abs: float
    beyond_chance: float | None = None
    probabilities: bool = False
    logarithms_db: float | None = None


@dataclass(frozen=True)
class OutputErrors:
    """Errors of all outputs, in the model's order, measured over `samples` samples."""

    samples: int
    outputs: tuple[OutputError, ...]

    @property
    def sqnr_db(self) -> float | None:
        """The smallest SQNR of an output, -inf where NaN or infinities appear; None if none has one."""
        levels = [output.sqnr_db for output in self.outputs if output.sqnr_db is not None]
        return -math.inf if self.non_finite else min(levels, default=None)

    @property
    def agreement(self) -> float | None:
        """The smallest agreement of an output; None if none has one."""
        return min((o.agreement for o in self.outputs if o.agreement is not None), default=None)

    @property
    def non_finite(self) -> int:
        """Number of elements that are NaN or infinite in only one of both models."""
        return sum(output.non_finite for output in self.outputs)


@dataclass(frozen=True)
class StreamErrors:
    """Errors of both models where each takes its own states again, call after call, over `calls` calls.

    first, last: over the first and the last quarter of them, without the states.
    """

    calls: int
    first: OutputErrors
    last: OutputErrors


FEWEST = 16
"""Positions of other classes than the most frequent one from which on agreement beyond chance is told."""


@dataclass
class _Counts:
    errors: ErrorAccumulator = field(default_factory=ErrorAccumulator)
    logarithms: ErrorAccumulator = field(default_factory=ErrorAccumulator)
    distributes: bool = True
    """Whether all runs so far have probabilities [N, classes]."""
    is_real: bool = True
    same: int = 0
    compared: int = 0
    scores: ScoreAxis | None = None
    chosen: tuple[Counter[int], Counter[int]] = field(default_factory=lambda: (Counter(), Counter()))
    """How often each class is the best one at positions: of the int8 model and of the float model."""

    def beyond_chance(self) -> float | None:
        """Cohen's kappa of the choices at positions. Source: Cohen, A coefficient of agreement, 1960."""
        ours, theirs = self.chosen
        if self.scores is None or not self.scores.by_position:
            return None
        if self.compared - max(theirs.values(), default=0) < FEWEST:
            return None
        by_chance = sum(count * ours[choice] for choice, count in theirs.items()) / self.compared**2
        return (self.same / self.compared - by_chance) / (1.0 - by_chance)


class OutputErrorCounter:
    """Collects outputs of both models, run by run; memory does not grow with the runs.

    scores: outputs that are scores of classes, by name; without it their shapes tell which have one set of
    scores a sample. steps: of the integers that outputs of the int8 model are made of, by name.
    """

    def __init__(
        self, scores: Mapping[str, ScoreAxis] | None = None, steps: Mapping[str, float] | None = None
    ) -> None:
        self._counts: dict[str, _Counts] = {}
        self._scores = scores
        self._steps = steps or {}

    def add(self, found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
        """Count in the outputs of one run: of the int8 model, as reals, and of the float model."""
        for name, reference in expected.items():
            counts = self._counts.setdefault(name, _Counts())
            counts.is_real = reference.dtype.kind == "f"
            if reference.size:
                self._count(counts, name, found[name].reshape(reference.shape), reference)

    def result(self, samples: int) -> OutputErrors:
        """The errors so far, of runs over this many samples."""
        return OutputErrors(samples, tuple(_result(name, counts) for name, counts in self._counts.items()))

    def _count(self, counts: _Counts, name: str, found: Array, expected: Array) -> None:
        counts.errors.add(found, expected)
        if not counts.is_real:
            counts.same += int(np.count_nonzero(found == expected))
            counts.compared += expected.size
            return
        scores = sample_scores(expected.shape) if self._scores is None else self._scores.get(name)
        if scores is None:
            return
        ours, theirs = scores.chosen(found), scores.chosen(expected)
        counts.scores = scores
        counts.same += int(np.count_nonzero(ours == theirs))
        counts.compared += theirs.size
        if scores.by_position:
            for tally, chosen in zip(counts.chosen, (ours, theirs), strict=True):
                tally.update(chosen.tolist())
            return
        counts.distributes = counts.distributes and are_probabilities(expected)
        if counts.distributes:
            step = self._steps.get(name, 0.0)
            counts.logarithms.add(centred_logarithms(found, step), centred_logarithms(expected, step))


def _result(name: str, counts: _Counts) -> OutputError:
    agreement = counts.same / counts.compared if counts.compared else None
    if not counts.errors.elements:
        return OutputError(name, None, agreement, 0, 0.0)
    summary = counts.errors.summary()
    level = summary.sqnr_db if counts.is_real and summary.sqnr_db > -math.inf else None
    probabilities = counts.scores is not None and counts.scores.by_position and counts.scores.probabilities
    logarithms = counts.logarithms.summary().sqnr_db if _has_logarithms(counts) else None
    return OutputError(
        name,
        level,
        agreement,
        summary.non_finite,
        summary.max_abs,
        counts.beyond_chance(),
        probabilities,
        logarithms,
    )


def _has_logarithms(counts: _Counts) -> bool:
    return counts.distributes and counts.logarithms.elements > 0
