"""Documents as one HTML file that needs nothing from the network."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from qglow.core.version import __version__
from qglow.report.document import Block, Document

TEMPLATE = "report.html.j2"


def to_html(document: Document) -> str:
    """The whole document. Everything that comes from models and files is escaped."""
    source = files("qglow.report").joinpath("templates", TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["kind"] = _kind
    return environment.from_string(source).render(document=document, version=__version__)


def _kind(block: Block) -> str:
    return type(block).__name__.lower()
