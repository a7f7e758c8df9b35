"""New data against the profile of a model: does int8 as it was calibrated still fit?

Both data sets are seen by their histograms alone, value by value, with the ranges that quantization
gives to the old one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qglow.core.errors import RegressionError, UsageError
from qglow.core.options import require_limits
from qglow.core.version import __version__
from qglow.display.plain import to_plain, write_json
from qglow.graph.graph import Graph
from qglow.numerics.schema import Schema
from qglow.profiling.distance import wasserstein
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile
from qglow.profiling.profile import Profile
from qglow.quantization.calibration import Range
from qglow.quantization.pipeline import quantize_with
from qglow.quantization.squared_error import expected_squared_error
from qglow.recipe.schema import Recipe

_NAMED = 3
"""Number of drifted values that an error names."""


@dataclass(frozen=True, slots=True)
class ValueDrift:
    """One int8 value over the new data, against the old.

    covered: the range of int8, chosen from the old data. distance: Wasserstein-1 between the
    histograms, relative to the width of that range. outside_before, outside_now: share of the elements,
    0 to 1, that are more than half a step outside of it. sqnr_before, sqnr_now: predicted SQNR in dB of
    either data with that range. regained_db: what a range chosen from the new data would add to the
    latter.
    """

    value: str
    covered: Range
    seen_before: Range
    seen_now: Range
    distance: float
    outside_before: float
    outside_now: float
    sqnr_before: float
    sqnr_now: float
    regained_db: float

    @property
    def loss_db(self) -> float:
        """Loss of SQNR in dB with the new data; negative if it has more."""
        return _less(self.sqnr_before, self.sqnr_now)


@dataclass(frozen=True, slots=True)
class DriftLimits:
    """Limits of the drift of a value; None leaves a figure free.

    loss_db: dB of predicted SQNR. outside: share of the elements outside of the range, 0 to 1.
    distance: relative to the range. Raises UsageError for a limit that is no finite number.
    """

    loss_db: float | None = 3.0
    outside: float | None = None
    distance: float | None = None

    def __post_init__(self) -> None:
        require_limits(self)

    def broken_by(self, drift: ValueDrift) -> list[str]:
        """Limits that a value breaks, in words."""
        figures = (
            (drift.loss_db, self.loss_db, f"loses {drift.loss_db:.1f} dB"),
            (drift.outside_now, self.outside, f"has {100.0 * drift.outside_now:.3g} % outside of its range"),
            (drift.distance, self.distance, f"has moved by {drift.distance:.3g} of its range"),
        )
        return [text for found, limit, text in figures if limit is not None and not found <= limit]


@dataclass(frozen=True)
class DriftReport:
    """Drift of every int8 value between two profiles.

    samples_before, samples_now: numbers of samples of either profile. calibration: how ranges were chosen.
    """

    samples_before: int
    samples_now: int
    calibration: str
    values: tuple[ValueDrift, ...]

    def ranked(self) -> list[ValueDrift]:
        """The values, those that lose most first; of equal ones, those that moved most."""
        return sorted(self.values, key=lambda drift: (-drift.loss_db, -drift.distance, drift.value))

    def drifted(self, limits: DriftLimits | None = None) -> list[ValueDrift]:
        """The values beyond limits (default: 3 dB), worst first."""
        chosen = limits or DriftLimits()
        return [drift for drift in self.ranked() if chosen.broken_by(drift)]

    def check(self, limits: DriftLimits | None = None) -> None:
        """Raise RegressionError, naming the worst, where a value is beyond limits (default: 3 dB)."""
        chosen = limits or DriftLimits()
        found = self.drifted(chosen)
        if not found:
            return
        named = "; ".join(f"'{d.value}' {' and '.join(chosen.broken_by(d))}" for d in found[:_NAMED])
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise RegressionError(
            f"{len(found)} of {len(self.values)} values have drifted from the profile: {named}{more}\n"
            "Look at the new data; if it is what the model will see, profile it and quantize again."
        )


def prepared_alike(profile: Profile, recipe: Recipe | None) -> Recipe:
    """The recipe with the profile's preprocessing. Raises UsageError if it has another."""
    chosen = recipe or Recipe()
    if chosen.preprocessing not in (None, profile.preprocessing):
        raise UsageError(
            "the recipe's preprocessing is not that of the profile; leave it out, the profile's is used"
        )
    return replace(chosen, preprocessing=profile.preprocessing)


def write_drift(report: DriftReport, path: Path, limits: DriftLimits | None = None) -> None:
    """Write drift as JSON, worst values first, whole or not at all. Raises InputFileError.

    With limits, `drifted` lists the values beyond them.
    """
    values = [{**to_plain(drift), "loss_db": to_plain(drift.loss_db)} for drift in report.ranked()]
    content = {
        "qglow": __version__,
        **to_plain(report),
        "values": values,
        "limits": to_plain(limits or DriftLimits()),
        "drifted": [drift.value for drift in report.drifted(limits)],
    }
    write_json(path, content)


def compare_profiles(
    graph: Graph, before: Profile, now: Profile, recipe: Recipe | None = None
) -> DriftReport:
    """Compare two profiles of a canonical float graph: the loss of new data in the int8 form of the old.

    Channels are left as they are (no equalization), because histograms do not tell them apart. Raises
    ProfileError if a profile is of another graph.
    """
    plain = replace(recipe or Recipe(), equalize=False, correct_bias=False)
    old, new = before.check_matches(graph), now.check_matches(graph)
    ranges, fresh = (
        _ranges(graph, statistics, profile.samples, plain)
        for statistics, profile in ((old, before), (new, now))
    )
    values = tuple(
        _drift(name, covered, old[name], new[name], fresh.get(name, covered))
        for name, covered in ranges.items()
    )
    return DriftReport(before.samples, now.samples, str(plain.calibration), values)


def _ranges(
    graph: Graph, statistics: Mapping[str, ValueProfile], samples: int, recipe: Recipe
) -> dict[str, Range]:
    """The range of every int8 value, as neighbours that share parameters end up with it."""
    report = quantize_with(graph, dict(statistics), samples, recipe).report
    return {tensor.value: (tensor.low, tensor.high) for tensor in report.tensors}


def _drift(name: str, covered: Range, old: ValueProfile, new: ValueProfile, fresh: Range) -> ValueDrift:
    before, now = Distribution.of(old), Distribution.of(new)
    width = covered[1] - covered[0]
    moved = wasserstein(before, now)
    sqnr_now = expected_sqnr_db(now, covered)
    return ValueDrift(
        name,
        covered,
        before.range,
        now.range,
        moved / width if width else (math.inf if moved else 0.0),
        _outside(before, covered),
        _outside(now, covered),
        expected_sqnr_db(before, covered),
        sqnr_now,
        _less(expected_sqnr_db(now, fresh), sqnr_now),
    )


def expected_sqnr_db(distribution: Distribution, covered: Range) -> float:
    """SQNR in dB that a distribution has in 255 steps over this range; inf where nothing is lost."""
    low, high = (np.array([end]) for end in covered)
    noise = float(expected_squared_error(distribution, low, high, Schema.asymmetric)[0])
    signal = distribution.power() * distribution.total
    if noise <= 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal > 0.0 else -math.inf


def _outside(distribution: Distribution, covered: Range) -> float:
    """Share of the elements outside of a range, 0 to 1; up to half a step outside is only rounded."""
    if not distribution.total:
        return 0.0
    low, high = covered
    half = (high - low) / 255.0 / 2.0
    below, inside = distribution.elements_below(np.array([low - half, np.nextafter(high + half, np.inf)]))
    return float(max(distribution.total - inside + below, 0.0) / distribution.total)


def _less(reference: float, found: float) -> float:
    """Difference by which `found` is below `reference`; 0 if they are equal, even if both are infinite."""
    return 0.0 if reference == found else reference - found
