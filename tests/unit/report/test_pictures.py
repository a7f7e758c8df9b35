"""Pictures in reports: whole SVG, names escaped, the same every time, nothing from the network."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.display.blocks import Gallery, Picture, Section
from qglow.display.document import Document
from qglow.display.html import to_html
from qglow.display.markdown import to_markdown
from qglow.display.terminal import to_text
from qglow.quantization.pipeline import quantize
from qglow.quantization.tensors import TensorRange
from qglow.recipe.schema import Recipe
from qglow.report.layout import layered
from qglow.report.node_panels import node_panels
from qglow.report.pictures import histogram_picture, layer_picture
from qglow.report.quantization_sections import picture_sections
from tests.unit.profiling.networks import profile_of, residual_network

SVG = "{http://www.w3.org/2000/svg}"
TENSOR = TensorRange("a<b>&", "asymmetric", "kl", -1.0, 3.0, (5, 0, 9, 100), -0.5, 2.0, 0.01, 0.01, -78)


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def test_a_histogram_shows_what_was_seen_and_what_is_covered() -> None:
    picture = histogram_picture(TENSOR)
    root = parsed(picture.svg)
    covered = root.find("rect[@class='covered']")
    assert covered is not None
    assert float(covered.get("x", "")) == pytest.approx(220 * 0.5 / 4, abs=0.1)
    assert float(covered.get("width", "")) == pytest.approx(220 * 2.5 / 4, abs=0.1)
    assert "a<b>&: seen -1 to 3, int8 covers -0.5 to 2, 1 % clipped" == root.findtext("title") == picture.text


@pytest.mark.parametrize(
    "tensor",
    [
        replace(TENSOR, counts=()),
        replace(TENSOR, counts=(0, 0)),
        replace(TENSOR, seen_low=0.0, seen_high=0.0, low=0.0, high=0.0, counts=()),
        replace(TENSOR, seen_low=-1e30, seen_high=1e30),
    ],
)
def test_odd_values_have_a_picture_too(tensor: TensorRange) -> None:
    svg = histogram_picture(tensor).svg
    parsed(svg)
    assert "nan" not in svg and "inf" not in svg.replace("info", "")


def test_pages_hold_pictures_and_ask_the_network_for_nothing() -> None:
    found = quantize(residual_network(), profile_of(), Recipe())
    panels = node_panels(found.graph, found.report)
    document = Document("t", tuple(picture_sections(found.report, panels)), panels)
    page = to_html(document)
    assert (
        page.count("<svg") == len(found.report.tensors) + 3
    )  # the graph, whole and folded, and its overview
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert re.findall('http[^"]*', page) == ["http://www.w3.org/2000/svg"]  # a name, of elements
    assert page == to_html(document)


def test_other_formats_leave_pictures_out() -> None:
    blocks = (Picture("<svg/>", "words"), Gallery((Picture("<svg/>", "more"),), "caption"))
    document = Document("t", (Section("s", blocks),))
    assert to_markdown(document) == "# t\n\n## s\n"
    assert "svg" not in to_text(document)


def test_the_layer_chart_has_a_row_a_node() -> None:
    from qglow.profiling.samples import Sample
    from qglow.report.layers import compare_layers
    from tests.unit.profiling.networks import samples

    found = quantize(residual_network(), profile_of(), Recipe())
    data: list[Sample] = list(samples(3))
    report = compare_layers(found.source, found.graph, data)
    chart = parsed(layer_picture(report).svg).find("svg")
    assert chart is not None and len(chart.findall("g")) == len(report.layers)


def edges_of(count: int, numbers: list[int]) -> list[tuple[int, int]]:
    pairs = {(a % count, b % count) for a, b in zip(numbers, numbers[1:], strict=False)}
    return sorted((min(pair), max(pair)) for pair in pairs if pair[0] != pair[1])


@given(st.integers(1, 12), st.lists(st.integers(0, 100), max_size=20))
def test_nodes_have_places_of_their_own_and_edges_go_down(count: int, numbers: list[int]) -> None:
    edges = edges_of(count, numbers)
    layout = layered(count, edges)
    assert len(set(layout.places)) == count
    for (source, target), way in zip(edges, layout.edges, strict=True):
        assert (way[0], way[-1]) == (layout.places[source], layout.places[target])
        assert all(a[1] < b[1] for a, b in zip(way, way[1:], strict=False))
        assert all(a[0] == b[0] or b[1] == a[1] + 1.0 for a, b in zip(way, way[1:], strict=False))
        assert not set(way[1:-1]) & set(layout.places)


def test_a_chain_is_a_straight_line_that_edges_pass_beside() -> None:
    layout = layered(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 3), (3, 5), (0, 5)])
    columns = [column for column, _ in layout.places]
    assert max(columns) - min(columns) < 0.1
    for _, *between, _ in layout.edges[5:]:
        assert all(abs(column - columns[int(row)]) >= 0.6 for column, row in between)


@given(st.integers(1, 12), st.lists(st.integers(0, 100), max_size=20))
def test_boxes_of_one_layer_do_not_overlap(count: int, numbers: list[int]) -> None:
    layout = layered(count, edges_of(count, numbers))
    for row in range(layout.rows):
        columns = sorted(x for x, y in layout.places if y == row)
        assert all(b - a >= 1.0 - 2e-3 for a, b in zip(columns, columns[1:], strict=False))
        assert not columns or (columns[0] >= 0.0 and columns[-1] + 1.0 <= layout.columns + 1e-9)


def test_value_that_every_node_of_a_long_chain_reads_does_not_fill_the_drawing() -> None:
    count = 2000
    edges = [(n, n + 1) for n in range(count - 1)] + [(0, n) for n in range(2, count)]
    layout = layered(count, edges)
    assert layout.rows == count
    assert sum(map(len, layout.edges)) < 20 * count
