"""Errors of every output of an int8 model against the float model, on a few samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from qglow.core.types import Array
from qglow.metrics.classification import best_class, class_scores, classification_output
from qglow.report.metrics import ErrorAccumulator


@dataclass(frozen=True, slots=True)
class OutputError:
    """One output of the int8 model against the float model.

    sqnr_db: of reals, over all elements that are finite in both; None for integers and for an output that is
    zero wherever the float model gives a finite number, which no error can be related to. agreement: of
    integers the share of equal elements, of scores [N, classes] that of equal best classes, 0 to 1; else
    None. non_finite: elements that are NaN or infinite in only one of both. max_abs: largest difference.
    """

    name: str
    sqnr_db: float | None
    agreement: float | None
    non_finite: int
    max_abs: float


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


@dataclass
class _Counts:
    errors: ErrorAccumulator = field(default_factory=ErrorAccumulator)
    is_real: bool = True
    same: int = 0
    compared: int = 0


class OutputErrorCounter:
    """Collects outputs of both models, run by run; memory does not grow with the runs."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

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
        elif classification_output({name: expected}, len(expected) if expected.ndim else 0) is not None:
            chosen = best_class(class_scores(found)) == best_class(class_scores(expected))
            counts.same += int(np.count_nonzero(chosen))
            counts.compared += len(expected)


def _result(name: str, counts: _Counts) -> OutputError:
    agreement = counts.same / counts.compared if counts.compared else None
    if not counts.errors.elements:
        return OutputError(name, None, agreement, 0, 0.0)
    summary = counts.errors.summary()
    level = summary.sqnr_db if counts.is_real and summary.sqnr_db > -math.inf else None
    return OutputError(name, level, agreement, summary.non_finite, summary.max_abs)
