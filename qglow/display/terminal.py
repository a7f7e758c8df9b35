"""Documents as plain text for a terminal."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from qglow.core.printable import printable
from qglow.display.blocks import Gallery, Grid, Listing, Paragraph, Picture, Section
from qglow.display.document import Document

_NARROWEST = 10


def print_document(document: Document, console: Console | None = None) -> None:
    """Print every section, with bold titles where the console has them."""
    console = console or Console(highlight=False)
    for section in document.sections:
        print_section(section, console)


def print_section(section: Section, console: Console | None = None) -> None:
    """Print one section."""
    console = console or Console(highlight=False)
    console.print(Text(printable(section.title), style="bold"))
    for block in section.blocks:
        if isinstance(block, Picture | Gallery):
            continue
        console.print(Padding(_renderable(block), (0, 0, 1, 2)))


def to_text(document: Document, width: int = 120) -> str:
    """The document without colours, wrapped at `width` columns."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, highlight=False, legacy_windows=False)
    print_document(document, console)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _renderable(block: Paragraph | Listing | Grid) -> Text | RichTable:
    if isinstance(block, Paragraph | Listing):
        return Text(printable(block.text, lines=True))
    return _table(block)


def _table(block: Grid) -> RichTable:
    titled = any(column.title for column in block.columns)
    result = RichTable(
        box=box.SIMPLE_HEAD if titled else None,
        show_header=titled,
        title=Text(printable(block.caption)) if block.caption else None,
        title_justify="left",
        title_style="italic",
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for index, column in enumerate(block.columns):
        # Names may be broken over lines where the terminal is narrow, numbers not.
        longest = max((len(row[index]) for row in block.rows), default=0)
        result.add_column(
            Text(printable(column.title)),
            justify="right" if column.numeric else "left",
            overflow="fold",
            no_wrap=column.numeric,
            min_width=min(longest, _NARROWEST),
        )
    for row in block.rows:
        result.add_row(*(Text(printable(cell)) for cell in row))
    return result
