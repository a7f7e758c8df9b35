"""Sections as a piece of HTML for notebooks, without colours of its own and without the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qglow.display.blocks import Block, Gallery, Grid, Picture, Section
from qglow.display.page_grid import grids
from qglow.display.rendering import renderer

TEMPLATE = "fragment.html.j2"
MOST_ROWS = 12
"""Rows that are shown of a table; data frames have all of them."""


def to_fragment(sections: Sequence[Section]) -> str:
    """The first rows of each table, without pictures. Everything from models and files is escaped."""
    return renderer(TEMPLATE)(sections=[_short(section) for section in sections], grid_of=grids(()))


def _short(section: Section) -> Section:
    kept = [_shortened(block) for block in section.blocks if not isinstance(block, Picture | Gallery)]
    return Section(section.title, tuple(kept))


def _shortened(block: Block) -> Block:
    if not isinstance(block, Grid) or len(block.rows) <= MOST_ROWS:
        return block
    caption = f"{block.caption}; " if block.caption else ""
    return replace(
        block,
        rows=block.rows[:MOST_ROWS],
        caption=f"{caption}the first {MOST_ROWS} of {len(block.rows)} rows",
    )
