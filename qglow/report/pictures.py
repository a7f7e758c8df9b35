"""Pictures of results as SVG, drawn by templates: they need no library and no network to be seen.

Colours are classes, which the page's style sheet sets for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from qglow.display.blocks import Picture
from qglow.display.rendering import renderer
from qglow.graph.graph import Graph, Node
from qglow.quantization.report import QuantizationReport
from qglow.quantization.tensors import TensorRange
from qglow.report.layers import LayerReport
from qglow.report.layout import layered
from qglow.report.metrics import ErrorSummary

WIDTH, HEIGHT = 220, 72
"""Size of a histogram's picture, in pixels."""
COLOURS = 8
"""Regions have one of so many colours in turn."""
BEST = 80.0
"""dB at which a bar of the error chart is full."""


def histogram_picture(tensor: TensorRange) -> Picture:
    """Histogram of a value (heights logarithmic), with the range that int8 covers."""
    low, high = min(tensor.seen_low, tensor.low), max(tensor.seen_high, tensor.high)
    span = (high - low) or 1.0

    def across(x: float) -> float:
        return round(WIDTH * (x - low) / span, 2)

    start, end = across(tensor.seen_low), across(tensor.seen_high)
    caption = (
        f"{tensor.value}: seen {tensor.seen_low:.4g} to {tensor.seen_high:.4g}, int8 covers "
        f"{tensor.low:.4g} to {tensor.high:.4g}, "
    )
    clipped = f"{100.0 * tensor.clipped:.3g} % clipped"
    caption += clipped if tensor.counts else "no histogram: it is constant, or its channels were rescaled"
    svg = renderer("histogram.svg.j2")(
        width=WIDTH,
        height=HEIGHT,
        bars=_bars(tensor.counts, start, end),
        seen=(start, end),
        covered=(across(tensor.low), across(tensor.high)),
        zero=across(0.0) if low < 0.0 < high else None,
        caption=caption,
    )
    return Picture(svg, caption)


def _bars(counts: Sequence[int], start: float, end: float) -> str:
    """An SVG path of all bars between two places."""
    most = math.log1p(max(counts, default=0))
    if not most:
        return ""
    step = (end - start) / len(counts)
    tops = [round(HEIGHT * (1.0 - math.log1p(count) / most), 1) for count in counts]
    ends = [start + step * index for index in range(len(counts) + 1)]
    points = [f"H{a:.1f} V{top} H{b:.1f}" for a, b, top in zip(ends, ends[1:], tops, strict=False)]
    return f"M{start:.1f} {HEIGHT} {' '.join(points)} V{HEIGHT} Z"


def layer_picture(report: LayerReport) -> Picture:
    """SQNR of every int8 node, alone and accumulated, in the order of the graph."""
    rows = [
        (layer.node, layer.operator, _level(layer.isolated), _level(layer.accumulated))
        for layer in report.layers
    ]
    svg = renderer("layers.svg.j2")(rows=rows, best=BEST)
    return Picture(svg, "SQNR of every int8 node in the order of the graph; short bars lose most.")


def _level(errors: ErrorSummary | None) -> tuple[float, str]:
    """The share of a full bar, and its label."""
    if errors is None:
        return 0.0, "not measured"
    decibels = errors.sqnr_db
    share = min(max(decibels / BEST, 0.0), 1.0)
    return round(share, 4), "equal" if decibels == math.inf else f"{decibels:.1f} dB"


def graph_picture(graph: Graph, report: QuantizationReport) -> Picture:
    """The int8 graph from top to bottom, each int8 region in a colour, float nodes grey."""
    index = {node: number for number, node in enumerate(graph.nodes)}
    edges = [
        (index[value.producer], index[node])
        for node in graph.nodes
        for value in dict.fromkeys(node.inputs)
        if value is not None and value.producer is not None
    ]
    layout = layered(len(graph.nodes), edges)
    regions = {name: number for number, island in enumerate(report.islands) for name in island.nodes}
    reasons = {node.name: node.reason for node in report.float_nodes}
    boxes = [
        (x, y, node.operator.name, _kind(node, regions), _told(node, reasons))
        for node, (x, y) in zip(graph.nodes, layout.places, strict=True)
    ]
    svg = renderer("graph.svg.j2")(
        boxes=boxes, edges=layout.edges, columns=max(layout.columns, 1.0), rows=max(layout.rows, 1)
    )
    return Picture(svg, "The int8 graph: every int8 region has a colour, float nodes are grey.")


def _kind(node: Node, regions: dict[str, int]) -> str:
    if node.operator.is_border:
        return "border"
    return f"region{regions[node.name] % COLOURS}" if node.name in regions else "real"


def _told(node: Node, reasons: dict[str, str]) -> str:
    result = str(node.outputs[0].type) if node.outputs else ""
    reason = f"; float: {reasons[node.name]}" if node.name in reasons else ""
    return f"{node.name} ({node.operator.name}) -> {result}{reason}"
