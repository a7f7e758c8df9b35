"""Bars of several models as one SVG, on a ground of its own: legible on light and on dark pages."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

_COLOURS = {"a": "#a8a29e", "b": "#c2703d", "c": "#0f9488"}
_GROUND, _INK, _FAINT = "#fbfaf9", "#292524", "#57534e"
_WIDTH, _ROW, _REST = 10.4, 0.55, 0.75
"""Inches: width, height of a row, and of key and titles."""
_STEP = 0.27
"""Height of a bar and the gap to the next, in rows."""


@dataclass(frozen=True)
class Bar:
    """A bar. kind: "a", "b" or "c", which colours it. share: its length, 0 to 1. text: stands behind it."""

    kind: str
    share: float
    text: str


@dataclass(frozen=True)
class Group:
    """A row of the plot: a model, what it is, and the bars of each panel."""

    name: str
    what: str
    panels: Sequence[Sequence[Bar]]


def to_svg(title: str, panels: Sequence[str], key: Sequence[tuple[str, str]], rows: Sequence[Group]) -> str:
    """The plot. panels: titles of the columns. key: kind of bar, and what it stands for."""
    stream = io.StringIO()
    said = {"Title": title, "Description": _in_words(panels, key, rows), "Date": None}
    # Words stay words, the same figures give the same bytes, and names are no formulas.
    with rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "qglow", "font.size": 8.0, "text.parse_math": False}
    ):
        draw(panels, key, rows).savefig(stream, format="svg", metadata=said)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def draw(panels: Sequence[str], key: Sequence[tuple[str, str]], rows: Sequence[Group]) -> Figure:
    """Draw the figure; see `to_svg`."""
    size = (_WIDTH, _REST + _ROW * len(rows))
    figure = Figure(figsize=size, layout="constrained", facecolor=_GROUND)
    columns = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for index, (axes, panel) in enumerate(zip(columns, panels, strict=True)):
        _draw_panel(axes, panel, [row.panels[index] for row in rows])
    names = [f"{row.name}\n{row.what}" for row in rows]
    columns[0].set_yticks(range(len(rows)), names, color=_INK, ha="left")
    columns[0].tick_params(axis="y", pad=112)
    columns[0].set_ylim(len(rows) - 0.5, -0.5)  # the first one on top
    handles = [Patch(color=_COLOURS[kind], label=name) for kind, name in key]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(key), frameon=False, labelcolor=_INK)
    return figure


def _draw_panel(axes: Axes, title: str, rows: Sequence[Sequence[Bar]]) -> None:
    axes.set_title(title, loc="left", color=_INK, fontweight="bold", fontsize=9.0)
    axes.set_facecolor(_GROUND)
    axes.spines[:].set_visible(False)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0.0, 1.5)
    for row, bars in enumerate(rows):
        for place, bar in enumerate(bars):
            middle = row + _STEP * (place - (len(bars) - 1) / 2.0)
            length = min(max(bar.share, 0.0), 1.0)
            axes.barh(middle, length, height=0.8 * _STEP, color=_COLOURS[bar.kind], label=bar.kind)
            axes.text(length + 0.02, middle, bar.text, va="center", color=_FAINT)


def _in_words(panels: Sequence[str], key: Sequence[tuple[str, str]], rows: Sequence[Group]) -> str:
    names = dict(key)
    return " ".join(
        f"{row.name}, {panel}: {', '.join(f'{names[bar.kind]} {bar.text}' for bar in bars)}."
        for row in rows
        for panel, bars in zip(panels, row.panels, strict=True)
    )
