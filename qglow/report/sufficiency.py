"""Are the calibration samples enough? How every value's scale depends on how many there are.

Two questions: does the scale still change when samples are added (nested subsets, each twice the one
before), and would other samples of the same kind have given another one (bootstrap over shards: B. Efron,
"Bootstrap methods: another look at the jackknife", 1979)?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.core.version import __version__
from qglow.display.plain import to_plain, write_json
from qglow.graph.graph import Graph, Value
from qglow.profiling.shards import ShardedProfile
from qglow.quantization.pipeline import choices_of, quantize_with
from qglow.quantization.ranges import Ranges
from qglow.recipe.schema import Recipe

CONFIDENCE = 0.95
"""A step that is 10 % longer costs 0.8 dB of SQNR."""
_MOST = 0.95
"""The share of the values that settle which a verdict is about; the others are named."""

_NAMED = 5
"""Number of values that a verdict names."""


@dataclass(frozen=True, slots=True)
class ScaleStability:
    """The scale of one int8 value: over each subset, the smallest first and the last over all samples.

    low, high: in which it lies for 95 % of the resamples. Where the largest element sets the scale
    (minmax), resamples can only be without it, and `high` is the scale itself.
    """

    value: str
    scales: tuple[float, ...]
    low: float
    high: float

    def change(self, scale: float) -> float:
        """A scale relative to the one over all samples: 0.1 is 10 % more."""
        return scale / self.scales[-1] - 1.0

    def moves(self, tolerance: float) -> bool:
        """Whether other samples might well give a scale that differs by more."""
        return max(abs(self.change(self.low)), abs(self.change(self.high))) > tolerance

    def settled_at(self, tolerance: float) -> int:
        """Number of the first subset from which on no scale differs by more from the last."""
        differing = [i for i, scale in enumerate(self.scales) if abs(self.change(scale)) > tolerance]
        return differing[-1] + 1 if differing else 0


@dataclass(frozen=True)
class SufficiencyReport:
    """Stability of the scale of every int8 value.

    subsets: numbers of samples, each spread evenly over all of them. calibration: how ranges are chosen.
    tolerance: largest relative change of a settled scale, 0.1 for 10 %.
    """

    subsets: tuple[int, ...]
    calibration: str
    tolerance: float
    values: tuple[ScaleStability, ...]

    def ranked(self) -> list[ScaleStability]:
        """The values, the widest interval first."""
        return sorted(self.values, key=lambda x: (-(x.high - x.low) / x.scales[-1], x.value))

    def moving(self) -> list[ScaleStability]:
        """The values that all samples together do not settle, the widest interval first."""
        return [value for value in self.ranked() if value.moves(self.tolerance)]

    def enough(self) -> int | None:
        """Number of samples that settles nearly all of the values that settle; None if none does."""
        steady = sorted(
            value.settled_at(self.tolerance) for value in self.values if not value.moves(self.tolerance)
        )
        if not steady:
            return None
        return self.subsets[steady[max(0, int(np.ceil(_MOST * len(steady))) - 1)]]

    def late(self) -> list[tuple[ScaleStability, int]]:
        """Values that settle, but need more than `enough` samples, and how many."""
        steady = [value for value in self.ranked() if not value.moves(self.tolerance)]
        needed = [self.subsets[value.settled_at(self.tolerance)] for value in steady]
        enough = self.enough() or 0
        return [(value, count) for value, count in zip(steady, needed, strict=True) if count > enough]

    def verdict(self) -> str:
        """Tell in words how many samples are enough, for how many values, and which are not settled."""
        moving, late, enough = self.moving(), self.late(), self.enough()
        total, within = len(self.values), f"{100.0 * self.tolerance:g} %"
        if enough is None:
            return f"{self.subsets[-1]} samples are not enough: every scale may move by more than {within}."
        share = 100.0 * (total - len(moving) - len(late)) / total
        parts = [f"{enough} samples suffice for {share:.0f} % of {total} values (scales within {within})"]
        if late:
            listed = _listed(f"'{value.value}' ({needed})" for value, needed in late)
            parts.append(f"more are needed for {listed}")
        if moving:
            parts.append(f"{len(moving)} keep moving: {_listed(map(self._moving, moving))}")
        return "; ".join(parts) + "."

    @staticmethod
    def _moving(value: ScaleStability) -> str:
        low, high = (100.0 * value.change(end) for end in (value.low, value.high))
        return f"'{value.value}' ({low:+.0f} to {high:+.0f} %)"


def _listed(texts: Iterable[str]) -> str:
    """The first few of them."""
    every = list(texts)
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more


def write_sufficiency(report: SufficiencyReport, path: Path) -> None:
    """Write the figures as JSON with the verdict, whole or not at all. Raises InputFileError."""
    content = {
        "qglow": __version__,
        **to_plain(report),
        "verdict": report.verdict(),
        "enough": report.enough(),
        "moving": [value.value for value in report.moving()],
    }
    write_json(path, content)


def sufficiency(
    graph: Graph,
    sharded: ShardedProfile,
    recipe: Recipe | None = None,
    *,
    tolerance: float,
    resamples: int,
    seed: int,
    advance: Callable[[int], None] = lambda values: None,
) -> SufficiencyReport:
    """Measure how the scales of a canonical float graph depend on the samples; equal for equal seeds.

    `tolerance` is relative. `advance` is told each value that is done. Raises UsageError for a tolerance
    that is not positive and for fewer than ten resamples.
    """
    if not tolerance > 0.0 or resamples < 10:
        raise UsageError("`tolerance` has to be above 0, and there have to be at least 10 resamples")
    chosen = recipe or Recipe()
    shards = len(sharded.samples)
    strides = [2**power for power in range(shards.bit_length() - 1, -1, -1)]
    subsets = [sharded.every(stride) for stride in strides]
    sizes = np.asarray(sharded.samples)
    random = np.random.default_rng(seed)
    drawn = random.integers(0, shards, (resamples, shards))
    again = [np.bincount(row, minlength=shards) for row in drawn]
    scale_of = _Scales(graph, sharded, chosen)
    values = []
    for value in scale_of.values:
        scales = tuple(scale_of(value, times) for times in subsets)
        low, high = _interval(np.array([scale_of(value, times) for times in again]))
        values.append(ScaleStability(value.name, scales, low, high))
        advance(1)
    counts = tuple(int(np.sum(sizes * times)) for times in subsets)
    return SufficiencyReport(counts, str(chosen.calibration), tolerance, tuple(values))


class _Scales:
    """The scale of a value over parts of the data. Only values that int8 would hold are asked for."""

    def __init__(self, graph: Graph, sharded: ShardedProfile, recipe: Recipe) -> None:
        self._sharded = sharded
        self._choices = choices_of(graph, recipe)
        self._results = frozenset(value.name for value in graph.outputs)
        everything = sharded.every(1)
        statistics = {name: sharded.statistics(name, everything) for name in sharded.values}
        report = quantize_with(graph, statistics, sum(sharded.samples), _plain(recipe)).report
        names = {tensor.value for tensor in report.tensors}
        self.values: list[Value] = [value for value in graph.values() if value.name in names]

    def __call__(self, value: Value, times: Array) -> float:
        statistics = {value.name: self._sharded.statistics(value.name, times)}
        ranges = Ranges(statistics, self._choices, self._results)
        return ranges.parameters(ranges.of(value), ranges.schema(value)).scale


def _plain(recipe: Recipe) -> Recipe:
    """The recipe without what needs statistics of channels."""
    return replace(recipe, equalize=False, correct_bias=False)


def _interval(scales: Array) -> tuple[float, float]:
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(scales, [tail, 1.0 - tail])
    return float(low), float(high)
