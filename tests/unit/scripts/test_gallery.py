"""The gallery of the front page: what it draws and writes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from qglow.report.comparison_result import FLOAT, INT8, Accuracy, Comparison, Pairing
from qglow.report.metrics import ErrorSummary
from qglow.report.task_metric import MetricFigures
from scripts.benchmarks.bars import Bar, Group, draw, to_svg
from scripts.benchmarks.measurements.gallery import (
    COMMAND,
    FOLDER,
    KEY,
    KINDS,
    PANELS,
    Exhibit,
    figures,
    rows_of,
    to_markdown,
    to_plot,
    write_gallery,
)
from tests.zoo import REPOSITORY

SHOWN = Exhibit("fastestdet", "mAP50", 128, 34.5, 33.75, 3.0, 6.0, 1.5, 1_000_000, 250_000, "<p>report</p>")
SVG = "{http://www.w3.org/2000/svg}"
PAGES_BYTES = 4_000_000
"""A fifth of it where git has compressed them."""


def lengths(rows: list[Group], kind: str) -> list[float]:
    """Lengths of the bars of a kind, panel by panel."""
    figure = draw(PANELS[: len(rows[0].panels)], KEY, rows)
    return [
        bars.patches[0].get_width()
        for axes in figure.axes
        for bars in axes.containers
        if bars.get_label() == kind
    ]


def test_bars_are_as_long_as_their_shares_and_names_are_text() -> None:
    rows = [Group("m <1> $x_1$", "w", ([Bar("a", 0.5, "x"), Bar("a", 2.0, "y")],))]
    assert lengths(rows, "a") == [0.5, 1.0]
    svg = to_svg("t", ("p",), (("a", "<one>"),), rows)
    words = [text.text for text in ET.fromstring(svg).iter(f"{SVG}text")]
    assert {"m <1> $x_1$", "w", "<one>", "x", "y"} <= set(words)
    assert "m &lt;1&gt; $x_1$, p: &lt;one&gt; x, &lt;one&gt; y." in svg
    assert to_svg("t", ("p",), (("a", "<one>"),), rows) == svg


def test_the_plot_shows_the_figures() -> None:
    rows = rows_of([SHOWN])
    # The slowest, onnxruntime in int8 here, fills its panel.
    assert lengths(rows, "a") == pytest.approx([0.345, 0.5, 1.0])
    assert lengths(rows, "b") == pytest.approx([1.0])
    assert lengths(rows, "c") == pytest.approx([0.3375, 0.25, 0.25])
    assert "33.75" in to_plot([SHOWN])


def test_the_table_leads_to_the_reports(tmp_path: Path) -> None:
    assert "| fastestdet | mAP50, 128 samples | 34.50 | 33.75 | 3.00 ms |" in to_markdown([SHOWN])
    assert "| [fastestdet](assets/gallery/fastestdet.html) |" in to_markdown([SHOWN], links=True)
    write_gallery([SHOWN, replace(SHOWN, name="ten_vad")], tmp_path / "made")
    assert sorted(p.name for p in (tmp_path / "made").iterdir()) == [
        "fastestdet.html",
        "gallery.svg",
        "ten_vad.html",
    ]
    assert (tmp_path / "made" / "fastestdet.html").read_text() == "<p>report</p>"


def test_a_model_is_judged_by_what_its_data_has() -> None:
    errors = ErrorSummary(10, 0.5, 0.1, 0.1, 0.1, 0.1, 31.5, 0.999, 0)
    plain = Comparison(10, (Pairing(INT8, FLOAT, {"y": errors}, errors, None),), {})
    assert figures(plain) == ("cosine with float", 100.0, 99.9)
    right = {INT8: Accuracy(10, 0.8, 0.9), FLOAT: Accuracy(10, 0.75, 0.91)}
    assert figures(replace(plain, accuracy=right)) == ("top-1", 75.0, 80.0)
    assert figures(replace(plain, accuracy=right, counted="positions"))[0] == "top-1 of positions"
    metric = MetricFigures("f", {INT8: 7.25, FLOAT: 7.5})
    assert figures(replace(plain, accuracy=right, metric=metric)) == ("mAP50", 7.5, 7.25)


def test_the_front_page_shows_six_models_and_says_where_when_and_how() -> None:
    text = (REPOSITORY / "docs" / "index.md").read_text()
    shown = text.split("<!-- begin: gallery -->\n")[1].split("<!-- end: gallery -->")[0]
    assert re.search(r"\*\*Machine:\*\* .*(AMD|Intel|Arm)", shown)
    assert re.search(r"\*\*Commit:\*\* `[0-9a-f]{7}`", shown) and f"**Command:** `{COMMAND}`" in shown
    linked = re.findall(r"^\| \[([\w.]+)\]\(assets/gallery/\1\.html\)", shown, re.MULTILINE)
    assert linked == list(KINDS) and len(linked) == 6
    svg = ET.fromstring((FOLDER / "gallery.svg").read_text())
    assert set(linked) <= {text.text for text in svg.iter(f"{SVG}text")}


def test_the_pages_are_small_and_self_contained() -> None:
    pages = sorted(FOLDER.glob("*.html"))
    assert {page.stem for page in pages} == set(KINDS)
    assert sum(page.stat().st_size for page in pages) < PAGES_BYTES
    for page in pages:
        text = page.read_text()
        assert (
            not re.search(r"""(src|href)=["']https?:""", text) and "/work" not in text and "/tmp" not in text
        )
