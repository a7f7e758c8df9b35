"""Measured tables of the README: each stands between two comments that name it; scripts write them."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import onnxruntime

from qglow.core.errors import InputFileError
from qglow.core.files import write_atomically
from qglow.core.version import __version__
from qglow.kernels.isa import select_isa

README = Path(__file__).resolve().parents[1] / "README.md"


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in GitHub's Markdown; the first column is text, the others are numbers."""
    ruler = ["---", *["---:"] * (len(titles) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (titles, ruler, *rows))


def conditions() -> str:
    """The processor and the versions that a measurement was made with, as a sentence."""
    processor = f"{_processor()}, kernels for {select_isa().name}"
    versions = f"qglow {__version__}, onnxruntime {onnxruntime.__version__}"
    return f"Measured on {processor}; {versions}, Python {platform.python_version()}."


def update_readme(name: str, text: str, path: Path = README) -> None:
    """Put `text` between the comments "begin: name" and "end: name". Raises InputFileError without them."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(f"<!-- begin: {name} -->\n")
    _, end, after = rest.partition(f"<!-- end: {name} -->")
    if not (begin and end):
        raise InputFileError(f"{path} has no comments 'begin: {name}' and 'end: {name}' for the table")
    write_atomically(path, before + begin + text.rstrip("\n") + "\n" + end + after)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({len(names)} cores)" if names else platform.machine()
