"""Run-time counts: one graph of a bounded size that gives the results of all smaller ones."""

from __future__ import annotations

from qglow.counts.bounded import BoundedGraph, GrownInput, bounded_graph
from qglow.counts.count import Count, parse_count
from qglow.counts.fillers import Filler
from qglow.counts.samples import SizedGraph

__all__ = ["BoundedGraph", "Count", "Filler", "GrownInput", "SizedGraph", "bounded_graph", "parse_count"]
