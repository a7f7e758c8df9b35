"""Documents as Markdown (GitHub's tables)."""

from __future__ import annotations

from qglow.core.printable import printable
from qglow.display.blocks import Block, Gallery, Grid, Listing, Paragraph, Picture
from qglow.display.document import Document


def to_markdown(document: Document) -> str:
    """The whole document."""
    parts = [f"# {_escape(document.title)}"]
    for section in document.sections:
        parts.append(f"## {_escape(section.title)}")
        parts += [text for text in map(_block, section.blocks) if text]
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return _escape(block.text)
    if isinstance(block, Picture | Gallery):
        return ""
    if isinstance(block, Listing):
        return f"```\n{printable(block.text, lines=True).replace('```', '` ` `').rstrip()}\n```"
    return _table(block)


def _table(table: Grid) -> str:
    lines = [_row([_cell(column.title) for column in table.columns])]
    lines.append(_row(["---:" if column.numeric else "---" for column in table.columns]))
    lines += [_row([_cell(cell) for cell in row]) for row in table.rows]
    text = "\n".join(lines)
    return f"{_escape(table.caption)}\n\n{text}" if table.caption else text


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(text: str) -> str:
    return _escape(text).replace("|", "\\|")


def _escape(text: str) -> str:
    """Names from models are data: what would be markup is shown as it is."""
    text = printable(text, lines=True)
    for mark in ("\\", "`", "*", "_", "[", "]", "<", ">", "#", "&"):
        text = text.replace(mark, "\\" + mark)
    return text.replace("\n", "<br>")
