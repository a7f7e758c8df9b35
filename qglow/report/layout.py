"""Places for the nodes of a graph in a drawing: layers from the inputs down, few crossings.

The usual four steps: layers by the longest way from an input, waypoints where an edge passes a layer,
order within layers by the mean place of the neighbours (barycentre), places by that order. After
K. Sugiyama, S. Tagawa, M. Toda, "Methods for visual understanding of hierarchical system structures" (1981).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SWEEPS = 4

Point = tuple[float, float]


@dataclass(frozen=True)
class Drawing:
    """Nodes and edges in columns and rows; (0, 0) is the leftmost place of the first layer.

    edges: way points of each edge, from its source to its target.
    """

    places: tuple[Point, ...]
    edges: tuple[tuple[Point, ...], ...]
    columns: float
    rows: int


def layered(count: int, edges: Sequence[tuple[int, int]]) -> Drawing:
    """A layout of nodes 0..count-1, in an order in which every edge goes forward."""
    ranks = _ranks(count, edges)
    chains = _chains(count, edges, ranks)
    total = 1 + max((max(chain) for chain in chains), default=count - 1)
    layers: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for node, rank in enumerate(ranks):
        layers[rank].append(node)
    for (source, _), chain in zip(edges, chains, strict=True):
        for step, point in enumerate(chain[1:-1], start=1):
            layers[ranks[source] + step].append(point)
    links = [pair for chain in chains for pair in zip(chain, chain[1:], strict=False)]
    _sort(layers, links, max(total, count))
    width = max((len(layer) for layer in layers), default=0)
    places = {
        node: (column + (width - len(layer)) / 2, float(row))
        for row, layer in enumerate(layers)
        for column, node in enumerate(layer)
    }
    ways = tuple(tuple(places[point] for point in chain) for chain in chains)
    return Drawing(tuple(places[node] for node in range(count)), ways, float(width), len(layers))


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    ranks = [0] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        ranks[target] = max(ranks[target], ranks[source] + 1)
    return ranks


def _chains(count: int, edges: Sequence[tuple[int, int]], ranks: Sequence[int]) -> list[list[int]]:
    """Every edge as source, a waypoint in each layer that it passes, target. Waypoints count from `count`."""
    chains, waypoint = [], count
    for source, target in edges:
        passed = ranks[target] - ranks[source] - 1
        chains.append([source, *range(waypoint, waypoint + passed), target])
        waypoint += passed
    return chains


def _sort(layers: list[list[int]], links: Sequence[tuple[int, int]], total: int) -> None:
    above: list[list[int]] = [[] for _ in range(total)]
    below: list[list[int]] = [[] for _ in range(total)]
    for source, target in links:
        above[target].append(source)
        below[source].append(target)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in range(1, len(layers)) if down else range(len(layers) - 2, -1, -1):
            fixed = layers[row - 1] if down else layers[row + 1]
            at = {node: column - len(fixed) / 2 for column, node in enumerate(fixed)}
            own = {node: column - len(layers[row]) / 2 for column, node in enumerate(layers[row])}
            layers[row].sort(key=lambda n: _mean((above if down else below)[n], at, own[n]))


def _mean(neighbours: Sequence[int], at: Mapping[int, float], otherwise: float) -> float:
    return sum(at[n] for n in neighbours) / len(neighbours) if neighbours else otherwise
