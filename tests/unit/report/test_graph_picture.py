"""Drawing of a graph: boxes with precision, error and shape, views with and without data movement."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from qglow.display.node_panel import NodePanel
from qglow.quantization.pipeline import quantize
from qglow.recipe import Calibration, Match, Rule
from qglow.recipe.schema import Recipe
from qglow.report.graph_picture import graph_picture
from qglow.report.node_panels import data_movement, node_panels
from tests.unit.profiling.networks import profile_of, residual_network
from tests.unit.report.large_network import large_report, quantized


def chain(*moves: bool) -> list[NodePanel]:
    """Nodes one after the other, of which some move data."""
    last = len(moves) - 1
    return [
        NodePanel(
            f"node {n}",
            "Op",
            (f"v{n}",),
            "1×4",
            "int8",
            moved,
            sources=(n - 1,) if n else (),
            targets=(n + 1,) if n < last else (),
        )
        for n, moved in enumerate(moves)
    ]


def views(panels: list[NodePanel]) -> dict[str, ET.Element]:
    root = ET.fromstring(graph_picture(panels).svg)
    return {svg.get("data-view", ""): svg for svg in root.iter("svg") if svg.get("data-view")}


def boxes(view: ET.Element) -> list[ET.Element]:
    return [g for g in view.iter("g") if g.get("data-node")]


def test_boxes_tell_precision_and_reason_is_in_the_panel() -> None:
    options = Recipe(calibration=Calibration("minmax"), rules=(Rule(Match(name="depthwise"), dtype="float"),))
    found = quantize(residual_network(), profile_of(), options)
    panels = node_panels(found.graph, found.report)
    whole = views(list(panels))["whole"]
    kinds = {box.get("class", "").split()[1] for box in boxes(whole)}
    assert len(boxes(whole)) == len(found.graph.nodes)
    assert {"p-float", "p-conversion", "p-int8"} <= kinds
    assert any("kept by rule 1" in text for panel in panels for name, text in panel.facts)


def test_data_movement_is_folded_into_edges() -> None:
    drawn = views(chain(False, True, True, False))
    assert [len(boxes(view)) for view in drawn.values()] == [2, 4]
    (edge,) = [path.get("class") for path in drawn["folded"].iter("path")]
    assert edge == "wire via"
    assert {path.get("class") for path in drawn["whole"].iter("path")} == {"wire"}


def test_a_graph_of_data_movement_alone_is_drawn_whole() -> None:
    assert set(views(chain(True, True))) == {"whole"}
    assert set(views(chain(False, False))) == {"whole"}


def test_names_are_shown_as_text_and_long_ones_by_their_end() -> None:
    (panel,) = chain(False)
    hostile = NodePanel("<b>\x1b\u202e" + "x" * 60 + "end", "Op", ("v",), "1", "int8")
    (box,) = boxes(views([hostile])["whole"])
    name = [text.text or "" for text in box.iter("text")][1]
    assert name.startswith("…") and name.endswith("xend") and len(name) == 26
    told = box.get("aria-label", "")
    assert told.isprintable() and told.startswith("<b>\\x1b\\u202e")


def test_errors_have_a_class_and_a_text() -> None:
    panels = [NodePanel("n", "Op", ("v",), "1", "int8", db=db) for db in (3.0, 15.0, 30.0, 99.0, None)]
    found = boxes(views(panels)["whole"])
    assert [box.get("class", "").split()[2] for box in found] == ["e0", "e1", "e2", "e3", "enone"]
    assert ["dB" in "".join(box.itertext()) for box in found] == [True] * 4 + [False]


def test_regions_have_colours_where_there_are_several() -> None:
    panels = [NodePanel("n", "Op", ("v",), "1", "int8", region=region) for region in (0, 1, 2, 9)]
    found = boxes(views(panels)["whole"])
    assert [box.get("class", "").split()[3] for box in found] == ["r0", "r1", "r2", "r2"]
    assert "int8 region" in graph_picture(panels).svg
    assert "int8 region" not in graph_picture(panels[:2]).svg


def test_panels_of_a_measured_network_know_their_neighbours() -> None:
    made, layers = quantized(3)
    panels = node_panels(made.graph, made.report, layers)
    for number, panel in enumerate(panels):
        assert all(number in panels[source].targets for source in panel.sources)
        assert all(number in panels[target].sources for target in panel.targets)
        assert panel.moves == data_movement(made.graph.nodes[number])
    assert {panel.operator for panel in panels if panel.moves} == {"Slice", "Concat", "Transpose", "Reshape"}
    conv = next(panel for panel in panels if panel.name == "layer1/left.Conv")
    (weights,) = conv.weights
    assert weights.channels == len(weights.low) == len(weights.scale) == 8
    assert all(low < high for low, high in zip(weights.low, weights.high, strict=True))
    assert conv.db is not None and "measured" in conv.error and conv.histograms


def test_errors_are_estimated_from_the_profile_where_no_layer_was_measured() -> None:
    made, layers = quantized(3)
    measured = {panel.name: panel for panel in node_panels(made.graph, made.report, layers)}
    estimated = [p for p in node_panels(made.graph, made.report) if p.db is not None]
    assert len(estimated) > 20 and all("histogram" in panel.error for panel in estimated)
    both = [(p.db, measured[p.name].db) for p in estimated if p.operator in ("Conv", "Add")]
    close = [abs(a - b) < 12.0 for a, b in both if a is not None and b is not None]
    assert sum(close) > 0.8 * len(close) > 0


def test_the_same_network_gives_the_same_drawing() -> None:
    report = large_report(3)
    made, _ = quantized(3)
    assert report.quantization is not None
    one, other = (graph_picture(node_panels(made.graph, report.quantization)).svg for _ in range(2))
    assert one == other
