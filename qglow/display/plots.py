"""Plots of results, for who has matplotlib. Names of models are drawn as they are, not as formulas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from qglow.core.errors import UsageError
from qglow.core.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEEN, COVERED, SECOND = "#2f6fb3", "#3a9d5d", "#d08a2e"
"""Colours that can be told apart on light and on dark ground."""
_LONGEST = 40
_ROW = 0.28
"""Inches of height for each bar."""

Span = tuple[float, float]


def axes_or_new(axes: Axes | None, width: float = 7.0, height: float = 3.5) -> Axes:
    """Return the given axes, or those of a new figure, sizes in inches.

    Raises UsageError if matplotlib is not installed.
    """
    if axes is not None:
        return axes
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise UsageError('matplotlib is not installed: pip install "qglow[plots]"') from error
    _, made = pyplot.subplots(figsize=(width, height), layout="constrained")
    return made


def draw_histogram(
    axes: Axes | None, title: str, edges: Sequence[float], counts: Sequence[float], covered: Span | None
) -> Axes:
    """Draw counts in bins, heights logarithmic, and the range that integers cover.

    edges: one more than counts.
    """
    axes = axes_or_new(axes)
    if len(counts):
        axes.stairs(counts, edges, fill=True, color=SEEN, label="seen")
    axes.set_yscale("symlog")
    axes.set_ylim(bottom=0.0)
    if covered is not None:
        low, high = covered
        axes.axvspan(
            low, high, color=COVERED, alpha=0.18, zorder=0, label=f"covered: {low:.4g} to {high:.4g}"
        )
        for edge in covered:
            axes.axvline(edge, color=COVERED)
    axes.set_title(_text(title), parse_math=False)
    axes.set_xlabel("value")
    axes.set_ylabel("elements")
    axes.legend()
    return axes


def draw_bars(
    axes: Axes | None, names: Sequence[str], series: Mapping[str, Sequence[float | None]], unit: str
) -> Axes:
    """Draw a row of bars for each name from the top down, one bar for each series; None draws nothing.

    Infinite values fill the axis.
    """
    axes = axes_or_new(axes, height=1.2 + _ROW * len(names))
    known = [v for values in series.values() for v in values if v is not None and math.isfinite(v)]
    most = max(known, default=1.0)
    thickness = 0.8 / max(len(series), 1)
    for number, (label, values) in enumerate(series.items()):
        places = [row + thickness * (number - (len(series) - 1) / 2) for row in range(len(names))]
        widths = [0.0 if v is None else min(v, most) for v in values]
        axes.barh(places, widths, height=thickness, color=(SEEN, SECOND, COVERED)[number % 3], label=label)
    axes.set_yticks(range(len(names)))
    axes.set_yticklabels([_text(name) for name in names], parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)  # the first one on top
    axes.set_xlabel(unit)
    if len(series) > 1:
        axes.legend()
    return axes


def draw_front(
    axes: Axes | None,
    points: Sequence[tuple[float, float]],
    front: Sequence[tuple[float, float]],
    chosen: tuple[float, float] | None,
    labels: tuple[str, str],
) -> Axes:
    """Draw points, those that no other beats joined by a line, and the one that was chosen."""
    axes = axes_or_new(axes)
    axes.plot(*_columns(points), "o", color=SEEN, alpha=0.5, label="measured")
    axes.plot(*_columns(front), "o-", color=SECOND, label="no other is faster and better")
    if chosen is not None:
        axes.plot(*chosen, "*", color=COVERED, markersize=14, label="chosen")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(_text(labels[1]), parse_math=False)
    axes.legend()
    return axes


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _text(name: str) -> str:
    shown = printable(name)
    return shown if len(shown) <= _LONGEST else "…" + shown[1 - _LONGEST :]
