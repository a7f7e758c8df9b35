"""Pages of reports: tables with tools, references to nodes, data for scripts, hostile names, size."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from qglow.display.blocks import Section, table
from qglow.display.document import Document
from qglow.display.html import nodes_json, to_html
from qglow.display.node_panel import NodePanel
from qglow.display.page_grid import grids
from qglow.report.report import document_of, write_report
from tests.unit.report.large_network import large_report, quantized

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\"'><img src=x onerror=alert(1)>",
    "\x1b[31m\r\n\x00\x85",
    "\u202ekcab\u2066\u2028\u2029\ufeff",
    "]]>{{ y }}{% x %}&lt;\\u003c",
)


class Elements(HTMLParser):
    """Tags, their attributes, and the text of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.scripts: dict[str, str] = {}
        self._script = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self._script = (dict(attrs).get("id") or "") if tag == "script" else ""

    def handle_endtag(self, tag: str) -> None:
        self._script = ""

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


def parsed(page: str) -> Elements:
    elements = Elements()
    elements.feed(page)
    return elements


def page_of(blocks: int, prefix: str = "") -> str:
    made, _ = quantized(blocks, prefix)
    return to_html(document_of(large_report(blocks, prefix), made.graph))


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_names_are_text_everywhere(evil: str) -> None:
    page, plain = page_of(1, evil), parsed(page_of(1))
    found = parsed(page)
    assert found.tags == plain.tags and found.attributes == plain.attributes
    assert set(found.scripts) == {"start", "nodes", "behaviour"}
    assert found.scripts["behaviour"] == plain.scripts["behaviour"]
    assert not {character for character in page if not character.isprintable() and character not in "\n\t"}
    names = [node["name"] for node in json.loads(found.scripts["nodes"])]
    assert len(names) > 10 and all(name.isprintable() for name in names)
    if evil.isprintable():
        assert f"{evil}stem.Conv" in names


def test_data_of_scripts_is_json_that_ends_no_script() -> None:
    panels = [NodePanel(evil, evil, (evil,), evil, evil, facts=((evil, evil),)) for evil in HOSTILE]
    text = nodes_json(panels)
    assert not set(text) & set("<>&\u2028\u2029\u202e\x00")
    assert json.loads(text)[0]["name"] == HOSTILE[0]


def test_cells_that_name_nodes_or_values_lead_to_them() -> None:
    panels = (NodePanel("a", "Conv", ("x",), "1", "int8"), NodePanel("b", "Relu", ("y",), "1", "int8", True))
    grid = grids(panels)(table(("value", "operator"), [("y", "a"), ("a", "b"), ("z", "b")]))
    assert [row.nodes for row in grid.rows] == [(1, None), (0, None), (None, None)]
    assert [row.moves for row in grid.rows] == [True, False, False]
    assert not grid.has_tools and grid.movements == 0


def test_long_tables_have_tools_and_fold_data_movement() -> None:
    panels = tuple(NodePanel(str(n), "Op", (f"v{n}",), "1", "int8", n % 2 == 0) for n in range(10))
    rows = [(str(n), "Conv" if n % 2 else "Slice", f"{n}") for n in range(10)]
    grid = grids(panels)(table(("node", "operator", "SQNR>"), rows))
    assert grid.has_tools and (grid.movements, grid.shown) == (5, 5)
    assert grid.choices == ((1, "operator", ("Conv", "Slice")),)
    page = to_html(Document("t", (Section("s", (table(("node", "operator", "SQNR>"), rows),)),), panels))
    assert page.count('<tr class="movement">') == 5 and "5 of 10 rows" in page


def test_verdict_and_worst_values_come_first() -> None:
    page = page_of(3)
    main = page[page.index("<main>") :]
    first = main[main.index("<section") : main.index("</section>")]
    assert 'class="verdict good"' in first and first.count('class="reference"') == 5


def test_a_page_of_300_nodes_is_small_and_the_same_every_time(tmp_path: Path) -> None:
    made, _ = quantized()
    assert len(made.graph.nodes) >= 300
    for name in ("a", "b"):
        write_report(tmp_path / name, large_report(), graph=made.graph)
    page = (tmp_path / "a/report.html").read_bytes()
    assert page == (tmp_path / "b/report.html").read_bytes()
    assert len(page) < 3_000_000
    assert not re.search(rb"(src|href)=\"(?!#)", page)
