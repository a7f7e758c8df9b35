"""Measured tables of the documentation: each stands between two comments that name it; benchmarks write
them. Pages are the Markdown files in docs/."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import onnxruntime

from qglow.core.errors import InputFileError
from qglow.core.files import write_atomically
from qglow.core.version import __version__
from qglow.targets.registry import select_target

REPOSITORY = Path(__file__).resolve().parents[2]


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in GitHub's Markdown; the first column is text, the others are numbers."""
    ruler = ["---", *["---:"] * (len(titles) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (titles, ruler, *rows))


def conditions() -> str:
    """The processor and the versions that a measurement was made with, as a sentence."""
    processor = f"{processor_name()}, kernels for {select_target().description.name}"
    versions = f"qglow {__version__}, onnxruntime {onnxruntime.__version__}"
    return f"Measured on {processor}; {versions}, Python {platform.python_version()}."


def page_of(name: str) -> Path:
    """The page that has a place for a table. Raises InputFileError where none has."""
    for path in sorted((REPOSITORY / "docs").rglob("*.md")):
        if f"<!-- begin: {name} -->\n" in path.read_text(encoding="utf-8"):
            return path
    raise InputFileError(f"no page in docs/ has a comment 'begin: {name}'")


def update_page(name: str, text: str, path: Path | None = None) -> None:
    """Put `text` between the comments "begin: name" and "end: name" of a page, or of the one that has them.

    Raises InputFileError where they are missing.
    """
    path = path or page_of(name)
    before, _, after = _parts(name, path)
    write_atomically(path, before + text.rstrip("\n") + "\n" + after)


def with_other_rows(name: str, text: str, order: Sequence[str], path: Path | None = None) -> str:
    """`text`, which begins with a table, with the rows of models in `order` that only the page has.

    Rows are told apart by their first cell, and stand in the order given. Raises InputFileError where
    those of the page have other columns.
    """
    path = path or page_of(name)
    lines = text.split("\n")
    count = next((index for index, line in enumerate(lines) if not line.startswith("|")), len(lines))
    _, present, _ = _parts(name, path)
    rows = {_first_cell(line): line for line in present.split("\n") if line.startswith("|")}
    rows |= {_first_cell(line): line for line in lines[2:count]}
    body = [rows[model] for model in order if model in rows]
    other = [_first_cell(line) for line in body if line.count("|") != lines[0].count("|")]
    if other:
        raise InputFileError(
            f"{path}: table {name} has other columns for {', '.join(other)}; measure them too"
        )
    return "\n".join([*lines[:2], *body, *lines[count:]])


def _first_cell(line: str) -> str:
    return line.split("|")[1].strip()


def _parts(name: str, path: Path) -> tuple[str, str, str]:
    """The page up to and with the comment that begins a table, the table, and the rest."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(f"<!-- begin: {name} -->\n")
    table, end, after = rest.partition(f"<!-- end: {name} -->")
    if not (begin and end):
        raise InputFileError(f"{path} has no comments 'begin: {name}' and 'end: {name}' for the table")
    return before + begin, table, end + after


def processor_name() -> str:
    """The processor and how many cores of it there are, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({len(names)} cores)" if names else platform.machine()
