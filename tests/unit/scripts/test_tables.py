"""Tables of the documentation that only some rows of were measured anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from qglow.core.errors import InputFileError
from scripts.benchmarks.tables import markdown_table, with_other_rows

PAGE = """before
<!-- begin: t -->
| model | old title |
| --- | ---: |
| b | 2 |
| gone | 9 |
| a | 1 |

Measured long ago.
<!-- end: t -->
after
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "speed.md"
    path.write_text(PAGE)
    return path


def test_other_rows_stay_in_the_order_given(page: Path) -> None:
    table = markdown_table(("model", "title"), [("c", "3"), ("b", "20")]) + "\n\nMeasured today."
    assert with_other_rows("t", table, ["a", "b", "c", "d"], page).split("\n") == [
        "| model | title |",
        "| --- | ---: |",
        "| a | 1 |",
        "| b | 20 |",
        "| c | 3 |",
        "",
        "Measured today.",
    ]


def test_rows_with_other_columns_are_not_kept(page: Path) -> None:
    table = markdown_table(("model", "title", "more"), [("c", "3", "4")])
    with pytest.raises(InputFileError, match="other columns for a, b; measure them too"):
        with_other_rows("t", table, ["a", "b", "c"], page)
    assert with_other_rows("t", table, ["c"], page).endswith("| c | 3 | 4 |")


def test_a_page_without_the_table_is_an_error(page: Path) -> None:
    with pytest.raises(InputFileError, match="begin: u"):
        with_other_rows("u", "| x |\n| --- |", ["a"], page)
