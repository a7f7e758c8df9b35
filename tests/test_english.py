"""Docstrings of qglow begin with a verb or a noun, so that a reader knows at once what is described."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zoo import REPOSITORY

ROOT = REPOSITORY / "qglow"

# fmt: off
REFUSED = frozenset((
    "Always", "As", "Between", "By", "For", "From", "How", "In", "Into", "Of", "On", "Only",
    "That", "These", "Those", "Through", "To", "What", "When", "Where", "Which", "Who", "Why",
    "With", "Without",
))
# fmt: on
"""First words that leave open what is described."""


def first_word(docstring: str) -> str:
    """The first word of a docstring."""
    return docstring.split()[0].strip('"`,.:;') if docstring.split() else ""


def refused_docstrings(path: Path) -> Iterator[str]:
    """Places of docstrings in a file that begin with a refused word."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        docstring = ast.get_docstring(node) if isinstance(node, kinds) else None
        if docstring and first_word(docstring) in REFUSED:
            line = 1 if isinstance(node, ast.Module) else node.lineno
            yield f"{path.relative_to(REPOSITORY)}:{line}: {docstring.splitlines()[0]}"


PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_a_verb_or_a_noun(package: str) -> None:
    found = [place for path in sorted((ROOT / package).rglob("*.py")) for place in refused_docstrings(path)]
    assert not found, "\n".join(found)


def test_refused_words_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_english.REPOSITORY", tmp_path)
    path = tmp_path / "m.py"
    path.write_text('def f():\n    """What holds."""\n\n\ndef g():\n    """Hold."""\n')
    assert list(refused_docstrings(path)) == ["m.py:1: What holds."]
