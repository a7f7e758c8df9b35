"""Documents as one HTML file that needs nothing from the network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from qglow.core.printable import printable
from qglow.core.version import __version__
from qglow.display.document import Document
from qglow.display.node_panel import NodePanel
from qglow.display.page_grid import grids
from qglow.display.plain import to_plain
from qglow.display.rendering import packaged, renderer

TEMPLATE = "report.html.j2"
STYLE, START = "page.css", "start.js"
MOST = 8
"""Blocks of a section that are shown at once: one with more, such as of many regions, begins folded."""
SCRIPTS = ("theme.js", "panel.js", "search.js", "graph.js", "tables.js")
_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def to_html(document: Document) -> str:
    """The whole document. Everything that comes from models and files is escaped."""
    from markupsafe import Markup  # jinja2's, and loaded where it is

    return renderer(TEMPLATE)(
        document=document,
        most=MOST,
        version=__version__,
        grid_of=grids(document.nodes),
        nodes=Markup(nodes_json(document.nodes)),
        style=Markup(packaged("page", STYLE)),
        start=Markup(packaged("page", START)),
        scripts=[Markup(packaged("page", name)) for name in SCRIPTS],
    )


def nodes_json(panels: Sequence[NodePanel]) -> str:
    """JSON of nodes, for scripts of a page.

    Names are as people may see them, and no character of the text ends a script or begins a tag.
    """
    content = [{**_shown(to_plain(panel)), "colour": panel.colour} for panel in panels]
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return text.translate(_ESCAPES)


def _shown(value: Any) -> Any:
    """Plain data with texts as people may see them."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return {key: _shown(item) for key, item in value.items()} if isinstance(value, dict) else value
