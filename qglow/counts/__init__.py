"""Run-time counts: one graph of a bounded size that gives the results of all smaller ones."""

from __future__ import annotations

from qglow.counts.bounded import bounded_graph
from qglow.counts.bounded_form import BoundedGraph, ComputedConstant, GrownInput, LiveAxis
from qglow.counts.count import Count, parse_count
from qglow.counts.fillers import Filler, LivePlaces
from qglow.counts.plain import (
    count_from_plain,
    count_to_plain,
    filled_shape,
    filler_from_plain,
    filler_to_plain,
    sizes_from_plain,
)
from qglow.counts.samples import SizedGraph
from qglow.counts.small import SmallConstants
from qglow.counts.twins import twins_of

__all__ = [
    "BoundedGraph",
    "ComputedConstant",
    "Count",
    "Filler",
    "GrownInput",
    "LiveAxis",
    "LivePlaces",
    "SizedGraph",
    "SmallConstants",
    "bounded_graph",
    "count_from_plain",
    "count_to_plain",
    "filled_shape",
    "filler_from_plain",
    "filler_to_plain",
    "parse_count",
    "sizes_from_plain",
    "twins_of",
]
