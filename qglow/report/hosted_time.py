"""Nodes of a program that run in onnxruntime, and their measured share of the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from qglow.display.blocks import percent
from qglow.display.lines import counted
from qglow.graph.graph import Graph
from qglow.host.clock import host_clock

LEAST_CALLS, LEAST_NS = 5, 50_000_000
"""A share is measured over that many calls, and for that long."""


@dataclass(frozen=True, slots=True)
class HostedTime:
    """Number of nodes that onnxruntime runs, and their share of the time of calls, 0 to 1."""

    nodes: int
    share: float

    def __str__(self) -> str:
        verb = "runs" if self.nodes == 1 else "run"
        return f"{counted(self.nodes, 'node')} {verb} in onnxruntime, {percent(self.share)} of the time"


def hosted_nodes(graph: Graph) -> int:
    """Number of the nodes of a graph, inside of its nodes and behind it, that onnxruntime runs."""
    tail = 0 if graph.tail is None else len(graph.tail.nodes)
    inside = sum(map(hosted_nodes, graph.regions()))
    return tail + inside + sum(node.operator.hosted is not None for node in graph.nodes)


def hosted_time(graph: Graph, run: Callable[[], None]) -> HostedTime | None:
    """Measure the share of the time of calls that goes to nodes in onnxruntime; None without such nodes.

    The way from compiled code to onnxruntime and back is part of it. run: calls code of the graph once.
    """
    nodes = hosted_nodes(graph)
    if not nodes:
        return None
    run()
    start, calls = time.perf_counter_ns(), 0
    with host_clock() as clock:
        while calls < LEAST_CALLS or time.perf_counter_ns() - start < LEAST_NS:
            run()
            calls += 1
        total = time.perf_counter_ns() - start
    return HostedTime(nodes, clock.nanoseconds / total)
