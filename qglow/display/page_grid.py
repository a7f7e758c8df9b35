"""Tables as a page shows them: cells that lead to nodes, rows that are folded away, choices of a filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from qglow.display.blocks import Column, Grid
from qglow.display.node_panel import NodePanel

FILTERED = 8
"""Tables of so many rows can be filtered."""
MOST_CHOICES = 40
"""Columns of more different values are filtered by words alone."""
NAMING = frozenset(("node", "value", "output"))
"""Titles of columns whose cells name nodes, or values by which nodes are found."""
CHOSEN = frozenset(("operator", "schema", "calibration", "because", "reason", "step", "kernel"))
"""Titles of columns that hold one of a few words."""


@dataclass(frozen=True, slots=True)
class PageRow:
    """Cells of a row. nodes: numbers of those that cells lead to. moves: whether it is data movement."""

    cells: tuple[str, ...]
    nodes: tuple[int | None, ...]
    moves: bool


@dataclass(frozen=True, slots=True)
class PageGrid:
    """A table of a page. choices: number, title and values of columns that can be filtered by a value."""

    columns: tuple[Column, ...]
    rows: tuple[PageRow, ...]
    caption: str
    choices: tuple[tuple[int, str, tuple[str, ...]], ...]

    @property
    def has_tools(self) -> bool:
        """Whether there are enough rows to look for one."""
        return len(self.rows) >= FILTERED and self.sorts

    @property
    def sorts(self) -> bool:
        """Whether its columns have titles, and there is something to sort."""
        return len(self.rows) > 1 and any(column.title for column in self.columns)

    @property
    def movements(self) -> int:
        """Number of rows that are data movement; 0 where all rows are, or the table is short."""
        found = sum(row.moves for row in self.rows)
        return found if self.has_tools and found < len(self.rows) else 0

    @property
    def shown(self) -> int:
        """Number of rows that are not folded away."""
        return len(self.rows) - self.movements


def grids(panels: Sequence[NodePanel]) -> Callable[[Grid], PageGrid]:
    """A function that gives the form of a table on a page, for a document with these nodes."""
    index: dict[str, int] = {}
    for number, panel in enumerate(panels):
        for name in (panel.name, *panel.results):
            index.setdefault(name, number)
    return lambda grid: _page_grid(grid, panels, index)


def _page_grid(grid: Grid, panels: Sequence[NodePanel], index: Mapping[str, int]) -> PageGrid:
    naming = [column.title in NAMING for column in grid.columns]
    rows = []
    for cells in grid.rows:
        nodes = tuple(index.get(c) if names else None for c, names in zip(cells, naming, strict=True))
        moves = any(node is not None and panels[node].moves for node in nodes)
        rows.append(PageRow(cells, nodes, moves))
    choices = tuple(_choices(grid)) if len(rows) >= FILTERED else ()
    return PageGrid(grid.columns, tuple(rows), grid.caption, choices)


def _choices(grid: Grid) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    for number, column in enumerate(grid.columns):
        values = {row[number] for row in grid.rows if row[number]}
        if column.title in CHOSEN and not column.numeric and 1 < len(values) <= MOST_CHOICES:
            yield number, column.title, tuple(sorted(values))
