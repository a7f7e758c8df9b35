"""Measures of difference between two tensors, accumulated in memory that does not grow with samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from qglow.core.types import Array
from qglow.metrics.classification import rank_of


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """Difference of y from a reference r over all elements seen.

    elements: number of elements. equal: share of elements that are equal, 0 to 1. max_abs,
    mean_abs, rmse: of y - r. relative: max_abs / max(range of r, max|r|). sqnr_db:
    10 log10(sum r^2 / sum (y - r)^2), infinite where nothing differs. cosine: of y and r as one
    long vector each. non_finite: elements where exactly one of both is NaN or infinite, or where
    both are and differ; the other figures leave all non-finite elements out.
    """

    elements: int
    equal: float
    max_abs: float
    mean_abs: float
    relative: float
    rmse: float
    sqnr_db: float
    cosine: float
    non_finite: int


@dataclass
class ErrorAccumulator:
    """Collects pairs of tensors. Sums are float64, so that their order hardly matters."""

    elements: int = 0
    equal: int = 0
    non_finite: int = 0
    max_abs: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    sums: Array = field(default_factory=lambda: np.zeros(5))

    def add(self, y: Array, reference: Array) -> None:
        """Count in a tensor and its reference, of one shape. Raises ValueError for two shapes."""
        if y.shape != reference.shape:
            raise ValueError(f"shape {y.shape} is compared with {reference.shape}")
        self.elements += y.size
        same = (y == reference) | (np.isnan(y) & np.isnan(reference))
        self.equal += int(np.count_nonzero(same))
        # In one memory order, because the last bit of a sum depends on the order of its terms.
        a, b = np.asarray(y, np.float64, order="C"), np.asarray(reference, np.float64, order="C")
        a, b = self._finite(a, b, same)
        if b.size:
            self._count(a, b)

    def merge(self, other: ErrorAccumulator) -> None:
        """Count in what another accumulator has seen."""
        self.elements += other.elements
        self.equal += other.equal
        self.non_finite += other.non_finite
        self.max_abs = max(self.max_abs, other.max_abs)
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.sums = self.sums + other.sums

    def summary(self) -> ErrorSummary:
        """The figures so far. Raises ValueError if nothing has been added."""
        if not self.elements:
            raise ValueError("no elements have been compared")
        absolute, noise, signal, energy, product = (float(s) for s in self.sums)
        return ErrorSummary(
            self.elements,
            self.equal / self.elements,
            self.max_abs,
            absolute / self.elements,
            _ratio(self.max_abs, self._scale()),
            math.sqrt(noise / self.elements),
            sqnr_db(signal, noise),
            _cosine(product, signal, energy),
            self.non_finite,
        )

    def _finite(self, y: Array, reference: Array, same: Array) -> tuple[Array, Array]:
        finite = np.isfinite(y) & np.isfinite(reference)
        if finite.all():
            return y, reference
        self.non_finite += int(np.count_nonzero(~finite & ~same))
        return y[finite], reference[finite]

    def _count(self, y: Array, reference: Array) -> None:
        error = y - reference
        self.max_abs = max(self.max_abs, float(np.abs(error).max()))
        self.low = min(self.low, float(reference.min()))
        self.high = max(self.high, float(reference.max()))
        self.sums = self.sums + [
            np.abs(error).sum(),
            np.square(error).sum(),
            np.square(reference).sum(),
            np.square(y).sum(),
            (y * reference).sum(),
        ]

    def _scale(self) -> float:
        """max(range, max|r|) of the finite reference elements."""
        if self.low > self.high:
            return 0.0
        return max(self.high - self.low, abs(self.low), abs(self.high))


def error_between(y: Array, reference: Array) -> ErrorSummary:
    """The figures of one pair of tensors."""
    accumulator = ErrorAccumulator()
    accumulator.add(y, reference)
    return accumulator.summary()


def sqnr_db(signal: float, noise: float) -> float:
    """Signal to noise from sums of squares: infinite without noise, -infinite without signal."""
    if noise <= 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal > 0.0 else -math.inf


def _ratio(value: float, scale: float) -> float:
    if value == 0.0:
        return 0.0
    return value / scale if scale > 0.0 else math.inf


def _cosine(product: float, a: float, b: float) -> float:
    """1 for two zero vectors, 0 where only one is zero."""
    if a <= 0.0 and b <= 0.0:
        return 1.0
    return product / math.sqrt(a * b) if a > 0.0 and b > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class StepSummary:
    """Difference of integer tensors: `equal` is the share of equal elements, steps the largest difference."""

    elements: int
    different: int
    max_step: int

    @property
    def equal(self) -> float:
        """Share of equal elements, 0 to 1."""
        return 1.0 - self.different / self.elements if self.elements else 1.0


@dataclass
class StepAccumulator:
    """Collects pairs of integer tensors."""

    elements: int = 0
    different: int = 0
    max_step: int = 0

    def add(self, q: Array, reference: Array) -> None:
        """Count in integers and their reference, of one shape. Raises ValueError for two shapes."""
        if q.shape != reference.shape:
            raise ValueError(f"shape {q.shape} is compared with {reference.shape}")
        steps = np.abs(q.astype(np.int64) - reference.astype(np.int64))
        self.elements += q.size
        self.different += int(np.count_nonzero(steps))
        self.max_step = max(self.max_step, int(steps.max(initial=0)))

    def summary(self) -> StepSummary:
        """The figures so far."""
        return StepSummary(self.elements, self.different, self.max_step)


@dataclass
class HitCounter:
    """Counts how often a class is among the best 1 and the best 5 scores."""

    samples: int = 0
    first: int = 0
    among_five: int = 0

    def add(self, scores: Array, classes: Array) -> None:
        """Count in scores [N, C] and the class [N] that is looked for in each row."""
        ranks = rank_of(scores, classes)
        self.samples += int(ranks.size)
        self.first += int(np.count_nonzero(ranks == 0))
        self.among_five += int(np.count_nonzero(ranks < 5))

    def shares(self) -> tuple[float, float]:
        """(top-1, top-5), each 0 to 1. Raises ValueError if nothing has been added."""
        if not self.samples:
            raise ValueError("no samples have been counted")
        return self.first / self.samples, self.among_five / self.samples
