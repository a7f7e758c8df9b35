"""Writes docs/reference/conformance.md: how many of ONNX's node tests pass, operator by operator.

python -m scripts.write_conformance, after python -m tests.conformance.nodes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from onnx.backend.test.case.test_case import TestCase

from tests.conformance.nodes import node_tests, read_list

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "conformance.md"
WAYS = ("interpreted", "compiled", "hosted")
_HEAD = """# Conformance

The node tests of onnx {version}, operator by operator: those that pass, of all. Every input of a test
is an input of the model. *interpreted* runs the float graph in numpy and *compiled* native code, both
without onnxruntime; *hosted* is interpreted too, and leaves nodes that qglow does not have to
onnxruntime. Tests that spell out an operator's function (their names end in "expanded") are not
counted. Sequences, optional values, strings, images in files and training are not supported. `python -m
scripts.write_conformance` writes this page.

| operator | interpreted | compiled | hosted |
| --- | ---: | ---: | ---: |
"""


def is_plain(name: str) -> bool:
    """Whether a test has the operator itself, not the function that defines it."""
    return "expanded" not in name


def page(tests: Sequence[TestCase]) -> str:
    """The text of the page, from the checked-in lists."""
    operators = {test.name: _operator(test) for test in tests if is_plain(test.name)}
    totals = Counter(operators.values())
    passing = [_counted(read_list(way)[1], operators) for way in WAYS]
    rows = [_row(name, [one[name] for one in passing], totals[name]) for name in sorted(totals)]
    rows.append(_row("all", [one.total() for one in passing], totals.total()))
    return _HEAD.format(version=read_list(WAYS[0])[0]) + "\n".join(rows) + "\n"


def sums(text: str) -> list[int]:
    """The tests that pass in each way, by the rows of a page's text without the last."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if " of " in line and line[0] == "|"]
    return [sum(int(row[1 + way].split(" of ")[0]) for row in rows[:-1]) for way in range(len(WAYS))]


def _operator(test: TestCase) -> str:
    assert test.model is not None
    node = test.model.graph.node[0]
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def _counted(names: Iterable[str], operators: dict[str, str]) -> Counter[str]:
    return Counter(operators[name] for name in names if name in operators)


def _row(name: str, passing: Sequence[int], total: int) -> str:
    return f"| {name} | " + " | ".join(f"{count} of {total}" for count in passing) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(node_tests()), encoding="utf-8")
    print(PAGE)
