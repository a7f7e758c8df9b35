from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from qglow.display.blocks import Listing, Paragraph, Section, facts, table
from qglow.display.document import Document
from qglow.display.html import to_html
from qglow.display.markdown import to_markdown
from qglow.display.terminal import to_text
from qglow.exporter import export_qdq
from qglow.report.bench import BenchResult, Latency, bench_section
from qglow.report.comparison import compare
from qglow.report.comparison_result import FLOAT, INT8, QDQ
from qglow.report.layers import compare_layers
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.report import ModelInfo, Report, document_of, timings_json, to_json, write_report
from qglow.report.runner import InterpretedGraph
from tests.unit.report.digits import MODEL, data, example


@cache
def report() -> Report:
    model = example()
    graph = model.quantized.graph
    inputs = {v.name: v.type for v in graph.inputs}
    reference = OnnxruntimeModel(MODEL, shapes={"input": (1, 1, 8, 8)})
    qdq = OnnxruntimeModel(export_qdq(graph).SerializeToString(), exact_sums=True)
    comparison = compare(InterpretedGraph(graph), reference, data("test.npz", 40), rivals={QDQ: qdq})
    layers = compare_layers(model.float_graph, graph, data("test.npz", 1))
    outputs = {v.name: v.type for v in graph.outputs}
    info = ModelInfo("digits", "calib_data/digits.onnx", "0" * 64, 17, inputs, outputs, ("N bound to 1",))
    return Report(
        info, "schema: asymmetric\n", "fold-batchnorm", model.quantized.report, "test", comparison, layers
    )


TIMINGS = BenchResult(
    {"a": Latency("a", 2.0, 1.9, 2.2, 1), "b": Latency("b", 0.5, 0.4, 0.6, 3)},
    np.full((2, 20), [[2.0], [0.5]]),
    20,
)


def test_the_example_is_accurate_in_int8() -> None:
    comparison = report().comparison
    assert comparison is not None
    drop = comparison.top1_drop()
    assert drop is not None and drop <= 2.5
    agreement = comparison.pairing(INT8, QDQ).agreement
    assert agreement is not None and agreement.top1 == 1.0


def test_files_are_written_and_are_the_same_again(tmp_path: Path) -> None:
    first = write_report(tmp_path / "a", report(), TIMINGS)
    second = write_report(tmp_path / "b", report(), TIMINGS)
    assert [path.name for path in first] == ["report.html", "report.md", "timings.json", "report.json"]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(path.name for path in first)
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_json_holds_every_result() -> None:
    content = json.loads(to_json(report()))
    assert content["format"] == 1
    assert content["comparison"]["accuracy"][FLOAT]["samples"] == 40
    assert content["model"]["inputs"] == {"input": "float<1 x 1 x 8 x 8>"}
    assert content["recipe"] == "schema: asymmetric\n"
    assert content["quantization"]["quantized"][0]["name"] == report().quantization.quantized[0].name
    assert len(content["layers"]["layers"]) >= 20


def test_json_writes_infinities_as_strings() -> None:
    text = timings_json(BenchResult({"a": Latency("a", np.inf, 0.0, 1.0, 1)}, np.zeros((1, 1)), 1))
    assert json.loads(text)["latencies"]["a"]["median_ms"] == "inf"


def test_timings_are_in_no_other_file(tmp_path: Path) -> None:
    write_report(tmp_path / "with", report(), TIMINGS)
    write_report(tmp_path / "without", report())
    for name in ("report.json", "report.md", "report.html"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()


def test_the_document_tells_what_users_look_for() -> None:
    text = to_text(document_of(report()))
    for wanted in (
        FLOAT,
        INT8,
        QDQ,
        "top-1",
        "SQNR",
        "nodes in int8",
        "rescales left",
        "Layers over 1 samples",
    ):
        assert wanted in text


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_one_balanced_file_without_links_to_the_network() -> None:
    tags = Tags()
    tags.feed(to_html(document_of(report())))
    assert tags.open == []
    assert tags.links and all(re.fullmatch(r"#s\d+", link) for link in tags.links)


def test_names_from_models_cannot_become_markup() -> None:
    evil = "<script>|`x`*_[y](z)\nend"
    document = Document(
        evil, (Section(evil, (Paragraph(evil), Listing("a\n```\nb"), table(("a", "b>"), [(evil, "1")]))),)
    )
    assert "<script>" not in to_html(document)
    markdown = to_markdown(document)
    assert "<script>" not in markdown and "\n```\nb" not in markdown
    assert "\\|\\`x\\`" in markdown.splitlines()[-1]
    assert "<script>" in to_text(document)


def test_rich_markup_in_names_is_text() -> None:
    assert "[bold]x[/bold]" in to_text(Document("t", (Section("s", (facts([("[bold]x[/bold]", "1")]),)),)))


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="2 columns"):
        table(("a", "b"), [("1",)])


def test_latencies_come_with_ratios_only_after_enough_alternations() -> None:
    text = to_text(Document("t", (bench_section(TIMINGS, "a"),)))
    assert "0.25" in text and "500.0 µs" in text
    few = BenchResult(TIMINGS.latencies, TIMINGS.turns_ms[:, :3], 3)
    assert "No ratios" in to_text(Document("t", (bench_section(few),)))
