"""Ranges and scales of integer constants by channel, few enough numbers for a small picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from qglow.core.types import Array
from qglow.display.node_panel import ChannelPlot
from qglow.graph.graph import Node, Value

MOST = 96
"""Entries of a plot, at most: a panel has no place for more bars."""


def channel_plots(node: Node) -> tuple[ChannelPlot, ...]:
    """The integer constants of a node that have parameters by channel."""
    return tuple(_plots(node))


def _plots(node: Node) -> Iterator[ChannelPlot]:
    for value in node.inputs:
        quantization = None if value is None else value.type.quantization
        if value is None or quantization is None or quantization.axis is None or value.data is None:
            continue
        yield _plot(value, value.data, quantization.axis)


def _plot(value: Value, data: Array, axis: int) -> ChannelPlot:
    quantization = value.type.quantization
    assert quantization is not None
    rows = np.moveaxis(data, axis, 0).reshape(data.shape[axis], -1).astype(np.int64)
    scales, zeros = np.asarray(quantization.scales), np.asarray(quantization.zero_points)
    low, high = ((end - zeros) * scales for end in (rows.min(axis=1), rows.max(axis=1)))
    starts = np.unique(np.linspace(0, len(scales), min(len(scales), MOST), endpoint=False).astype(int))
    parts = (
        np.minimum.reduceat(low, starts),
        np.maximum.reduceat(high, starts),
        np.maximum.reduceat(scales, starts),
    )
    return ChannelPlot(value.name, len(scales), *(_rounded(part) for part in parts))


def _rounded(numbers: Sequence[float] | Array) -> tuple[float, ...]:
    """Numbers with three digits, which a picture cannot tell from all digits."""
    return tuple(float(f"{number:.3g}") for number in numbers)
