"""Drawing of a graph: a box a node, with and without nodes that only move data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qglow.core.printable import printable
from qglow.display.blocks import Picture
from qglow.display.node_panel import NodePanel
from qglow.display.rendering import renderer
from qglow.report.layout import Drawing, layered

LEVELS = (15.0, 25.0, 35.0)
"""SQNR in dB below which a node has the first, second and third colour of errors."""
COLOURS = 7
"""Regions have one of so many colours in turn."""
LONGEST = 26
"""Characters of a name that fit into a box; of a longer one the end is shown."""
_LEGEND = (
    ("int8", "int8"),
    ("int16", "int16"),
    ("half", "16-bit float"),
    ("float", "float32"),
    ("hosted", "in onnxruntime"),
    ("conversion", "conversion"),
    ("other", "other"),
)


@dataclass(frozen=True, slots=True)
class Box:
    """A node in a drawing. classes: of CSS, for its colours. lines: operator, name, precision and shape."""

    node: int
    x: float
    y: float
    classes: str
    lines: tuple[str, str, str]
    level: str
    told: str


@dataclass(frozen=True, slots=True)
class View:
    """A drawing of some of the nodes. moved: for each edge, whether nodes that move data lie on it."""

    name: str
    drawing: Drawing
    boxes: tuple[Box, ...]
    moved: tuple[bool, ...]


def graph_picture(panels: Sequence[NodePanel]) -> Picture:
    """The graph from top to bottom, first without data movement where there is any."""
    views = list(_views(panels))
    classes = {panel.colour for panel in panels}
    svg = renderer("graph.svg.j2")(
        views=views,
        hidden=sum(panel.moves for panel in panels) if len(views) > 1 else 0,
        precisions=[(key, words) for key, words in _LEGEND if key in classes],
        levels=LEVELS,
        colours=COLOURS,
        regions=sorted({_region(panel) for panel in panels if panel.region}),
        measured=any(panel.db is not None for panel in panels),
    )
    return Picture(svg, f"The int8 graph, {len(panels)} nodes: a click on one tells what is known of it.")


def _views(panels: Sequence[NodePanel]) -> Iterator[View]:
    every = list(range(len(panels)))
    kept = [number for number in every if not panels[number].moves]
    if 0 < len(kept) < len(every):
        yield _view("folded", panels, kept)
    yield _view("whole", panels, every)


def _view(name: str, panels: Sequence[NodePanel], kept: Sequence[int]) -> View:
    place = {number: index for index, number in enumerate(kept)}
    ways: dict[tuple[int, int], bool] = {}
    reached: dict[int, dict[int, bool]] = {}
    for number, panel in enumerate(panels):
        sources: dict[int, bool] = {}
        for source in panel.sources:
            found = {source: False} if source in place else dict.fromkeys(reached[source], True)
            sources = {**found, **sources}
        reached[number] = sources
        if number in place:
            ways.update({(place[source], place[number]): moved for source, moved in sources.items()})
    drawing = layered(len(kept), list(ways))
    boxes = tuple(
        _box(number, panels[number], *spot) for number, spot in zip(kept, drawing.places, strict=True)
    )
    return View(name, drawing, boxes, tuple(ways.values()))


def _box(number: int, panel: NodePanel, x: float, y: float) -> Box:
    level = "" if panel.db is None else f"{panel.db:.1f} dB"
    classes = f"p-{panel.colour} e{_error(panel)} r{_region(panel)}" + (" moves" if panel.moves else "")
    below = f"{panel.precision} · {panel.shape}" if panel.shape else panel.precision
    lines = panel.operator, _short(panel.name), _short(below)
    told = ", ".join(filter(None, (panel.name, panel.operator, panel.precision, panel.shape, level)))
    return Box(number, x, y, classes, lines, level, told)


def _error(panel: NodePanel) -> str:
    if panel.db is None:
        return "none"
    return str(sum(panel.db >= level for level in LEVELS))


def _region(panel: NodePanel) -> int:
    """Number of the colour of its int8 region, from 1; 0 for none."""
    return 1 + (panel.region - 1) % COLOURS if panel.region else 0


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= LONGEST else f"…{shown[1 - LONGEST :]}"
