"""Pictures of results as SVG, drawn by templates: they need no library and no network to be seen.

Colours are classes, which the page's style sheet sets for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from qglow.display.blocks import Picture
from qglow.display.rendering import renderer
from qglow.quantization.tensors import TensorRange
from qglow.report.layer_report import LayerReport
from qglow.report.metrics import ErrorSummary

WIDTH, HEIGHT = 220, 72
"""Size of a histogram's picture, in pixels."""
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
    svg = renderer("layers.svg.j2")(
        rows=rows, best=BEST, measured=any(layer.accumulated is not None for layer in report.layers)
    )
    return Picture(svg, "SQNR of every int8 node in the order of the graph; short bars lose most.")


def _level(errors: ErrorSummary | None) -> tuple[float, str]:
    """The share of a full bar, and its label."""
    if errors is None:
        return 0.0, "not measured"
    decibels = errors.sqnr_db
    share = min(max(decibels / BEST, 0.0), 1.0)
    return round(share, 4), "equal" if decibels == math.inf else f"{decibels:.1f} dB"
