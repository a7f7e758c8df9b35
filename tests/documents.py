"""The pages of the documentation, and what tests look for in them."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from tests.zoo import REPOSITORY

README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "docs"
PAGES = (README, *sorted(DOCS.rglob("*.md")))


@cache
def reference() -> ModuleType:
    """The module that makes parts of the reference from the code."""
    name = "reference_text"
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@cache
def text_of(page: Path) -> str:
    """A page as it is written."""
    return page.read_text(encoding="utf-8")


@cache
def expanded(name: str) -> str:
    """A page of the reference with its generated parts, as the site shows it."""
    text: str = reference().expand(text_of(DOCS / "reference" / f"{name}.md"))
    return text


def name_of(page: Path) -> str:
    """A page's path in the repository, to name it in tests."""
    return str(page.relative_to(REPOSITORY))


def section(text: str, title: str) -> str:
    """A section's text, subsections included, by its title."""
    match = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert match, f"no section '{title}'"
    rest = text[match.end() :]
    end = re.search(rf"^#{{1,{len(match[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def runnable(text: str) -> list[tuple[str, str]]:
    """(language, code) of the blocks that a comment marks as runnable, in their order."""
    return re.findall(r"^<!-- runs -->\n```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def first_cells(text: str) -> list[str]:
    """The first cell of every row of the tables in a text, without titles and rulers."""
    rows = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
    following_rows = [*rows[1:], ""] if rows else []
    return [cell for cell, following in zip(rows, following_rows, strict=True)
            if not cell.startswith("---") and not following.startswith("---")]  # fmt: skip


def table_rows(text: str) -> dict[str, dict[str, str]]:
    """{first cell: {title: cell}} of the only table in a text."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    titles, _, *rows = [[cell.strip() for cell in line] for line in lines]
    return {row[0]: dict(zip(titles, row, strict=True)) for row in rows}


def code_spans(text: str) -> list[str]:
    """What stands in backquotes within lines, blocks left out."""
    without_blocks = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", without_blocks)


def named_options(spans: Sequence[str]) -> set[str]:
    """Options that pieces of code name; whole command lines are left to `command_lines`."""
    code = " ".join(span for span in spans if not span.startswith(("qglow ", "bash ", "pip ", "pytest ")))
    both = re.sub(r"--\[no-\]([a-z-]+)", r"--\1 --no-\1", code)
    return set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", both))


def command_lines(text: str) -> Iterator[list[str]]:
    """Every command line of qglow in shell blocks and in code spans, as words, without comments."""
    lines = [line for block in blocks(text, "sh") for line in block.splitlines()]
    for line in (*lines, *code_spans(text)):
        words = line.split(" #")[0].split()
        if words[:1] == ["qglow"] and len(words) > 1 and words[1] != "...":
            yield words[1:]
