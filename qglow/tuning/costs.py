"""Costs of graphs: multiplications, and cycles of each node by the estimate that selects kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from qglow.graph.graph import Graph, Node
from qglow.graph.work import node_multiply_adds
from qglow.kernels.emit.kernel import parse_kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.selection.select import select_kernels
from qglow.toolchain import lower_graph


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node of a graph or of a region of it.

    name: in a region behind its path. runs: how often it runs, as usual, in a run of the graph.
    """

    name: str
    node: Node
    runs: int


def placed_nodes(graph: Graph, path: str = "", runs: int = 1) -> Iterator[PlacedNode]:
    """Yield the nodes of a graph that runs so often, each before those of its regions."""
    for node in graph.nodes:
        yield PlacedNode(path + node.name, node, runs)
        for name, region in zip(node.operator.region_names, node.operator.regions, strict=True):
            inside = f"{path}{node.name}.{name}/"
            yield from placed_nodes(region, inside, runs * node.operator.usual_rounds)


def node_cycles(graph: Graph, target: VectorTarget) -> dict[str, float]:
    """Estimate cycles by name of the node, for all runs of it; those of a kernel for several are divided.

    Nodes of regions stand there by their names behind the path of the region.
    """
    cycles = _cycles(graph, target)
    for placed in placed_nodes(graph):
        for name, region in zip(placed.node.operator.region_names, placed.node.operator.regions, strict=True):
            rounds = placed.runs * placed.node.operator.usual_rounds
            for inner, cost in _cycles(region, target).items():
                cycles[f"{placed.name}.{name}/{inner}"] = rounds * cost
    return cycles


def _cycles(graph: Graph, target: VectorTarget) -> dict[str, float]:
    """Estimate cycles of a run of a graph's own nodes, by name."""
    program = lower_graph(graph)
    select_kernels(program, target)
    cycles: dict[str, float] = {}
    for instruction in program.code:
        if not instruction.kernel:
            continue
        cost = parse_kernel(instruction.kernel, target).cost(instruction, target)
        origins = instruction.origin or (instruction.name,)
        for origin in origins:
            cycles[origin] = cycles.get(origin, 0.0) + cost / len(origins)
    return cycles


def multiply_adds(graph: Graph) -> float:
    """Multiplications with weights in a run of the graph, those of all regions included."""
    return math.fsum(work for _, work in named_multiply_adds(graph))


def named_multiply_adds(graph: Graph) -> Iterator[tuple[str, float]]:
    """Names of nodes, in regions behind their paths, with multiplications in a run of the graph."""
    for placed in placed_nodes(graph):
        yield placed.name, placed.runs * node_multiply_adds(placed.node)
