"""Documents as one HTML file that needs nothing from the network."""

from __future__ import annotations

from qglow.core.version import __version__
from qglow.display.document import Document
from qglow.display.rendering import renderer

TEMPLATE = "report.html.j2"


def to_html(document: Document) -> str:
    """The whole document. Everything that comes from models and files is escaped."""
    return renderer(TEMPLATE)(document=document, version=__version__)
