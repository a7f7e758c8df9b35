"""Places for the nodes of a graph in a drawing: layers from the inputs down, few crossings, straight edges.

The usual four steps: layers by the longest way from an input, waypoints where an edge passes a layer,
order within layers by the mean place of the neighbours (barycentre), places by that order. After
K. Sugiyama, S. Tagawa, M. Toda, "Methods for visual understanding of hierarchical system structures" (1981).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SWEEPS = 4
SHIFTS = 8
"""Passes up and down that move nodes towards their neighbours."""
NARROW = 0.3
"""Room that a waypoint takes, in columns."""
YIELDING = 0.01
"""Weight of a waypoint's place, where a node has 1: nodes are straight below one another, edges pass them."""

LONGEST = 150
"""Rows that an edge may pass by waypoints; a longer one goes straight, so that the work stays bounded."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Drawing:
    """Nodes and edges in columns and rows; the leftmost place is in column 0, the first layer in row 0.

    edges: the points at which each edge turns, from its source to its target.
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
    rows = {point: row for row, layer in enumerate(layers) for point in layer}
    pairs = (pair for chain in chains for pair in zip(chain, chain[1:], strict=False))
    links = [(a, b) for a, b in pairs if rows[b] == rows[a] + 1]
    above, below = _neighbours(links, max(total, count))
    _sort(layers, above, below)
    columns = _columns(layers, above, below, count)
    places = {point: (columns[point], float(row)) for point, row in rows.items()}
    ways = tuple(_bent(tuple(places[point] for point in chain)) for chain in chains)
    width = 1.0 + max(columns.values(), default=-1.0)
    return Drawing(tuple(places[node] for node in range(count)), ways, width, len(layers))


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    ranks = [0] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        ranks[target] = max(ranks[target], ranks[source] + 1)
    return ranks


def _chains(count: int, edges: Sequence[tuple[int, int]], ranks: Sequence[int]) -> list[list[int]]:
    """Every edge as source, a waypoint in each layer that it passes, target. Waypoints count from `count`.

    One that is longer than `LONGEST` has none.
    """
    chains, waypoint = [], count
    for source, target in edges:
        passed = ranks[target] - ranks[source] - 1
        passed = passed if passed <= LONGEST else 0
        chains.append([source, *range(waypoint, waypoint + passed), target])
        waypoint += passed
    return chains


def _neighbours(links: Sequence[tuple[int, int]], total: int) -> tuple[list[list[int]], list[list[int]]]:
    above: list[list[int]] = [[] for _ in range(total)]
    below: list[list[int]] = [[] for _ in range(total)]
    for source, target in links:
        above[target].append(source)
        below[source].append(target)
    return above, below


def _sort(layers: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in range(1, len(layers)) if down else range(len(layers) - 2, -1, -1):
            fixed = layers[row - 1] if down else layers[row + 1]
            at = {node: column - len(fixed) / 2 for column, node in enumerate(fixed)}
            own = {node: column - len(layers[row]) / 2 for column, node in enumerate(layers[row])}
            layers[row].sort(key=lambda n: _mean((above if down else below)[n], at, own[n]))


def _columns(
    layers: Sequence[Sequence[int]], above: list[list[int]], below: list[list[int]], count: int
) -> dict[int, float]:
    """Columns of nodes and waypoints, in the order of their layers and close to their neighbours."""
    columns: dict[int, float] = {}
    for layer in layers:
        columns.update(_spread(layer, [0.0] * len(layer), count))
    for shift in range(SHIFTS):
        down = shift % 2 == 0
        for row in range(1, len(layers)) if down else range(len(layers) - 2, -1, -1):
            near = above if down else below
            wanted = [_wanted(near[point], columns, columns[point], count) for point in layers[row]]
            columns.update(_spread(layers[row], wanted, count))
    least = min(columns.values(), default=0.0)
    return {point: round(column - least, 3) for point, column in columns.items()}


def _spread(layer: Sequence[int], wanted: Sequence[float], count: int) -> dict[int, float]:
    """Columns nearest to the wanted ones, by weighted squares, that keep order and distances.

    Without the distances before each point the columns have only to rise, which pooling of neighbours that
    do not rise gives exactly.
    """
    offsets, offset = [], 0.0
    for index, point in enumerate(layer):
        if index:
            offset += (_room(layer[index - 1], count) + _room(point, count)) / 2.0
        offsets.append(offset)
    pools: list[tuple[float, float, int]] = []  # mean, weight, number of points
    for point, column, offset in zip(layer, wanted, offsets, strict=True):
        mean, weight, size = column - offset, YIELDING if point >= count else 1.0, 1
        while pools and pools[-1][0] > mean:
            last, heavy, many = pools.pop()
            mean = (mean * weight + last * heavy) / (weight + heavy)
            weight, size = weight + heavy, size + many
        pools.append((mean, weight, size))
    means = [mean for mean, _, size in pools for _ in range(size)]
    return {p: mean + offset for p, mean, offset in zip(layer, means, offsets, strict=True)}


def _bent(way: tuple[Point, ...]) -> tuple[Point, ...]:
    """The ends of a way and those of its points at which it does not go straight down."""
    inner = zip(way, way[1:], way[2:], strict=False)
    return (way[0], *(b for a, b, c in inner if not a[0] == b[0] == c[0]), way[-1])


def _wanted(neighbours: Sequence[int], columns: Mapping[int, float], own: float, count: int) -> float:
    """The mean column of neighbours that are nodes; of waypoints where there are only such."""
    return _mean([point for point in neighbours if point < count] or neighbours, columns, own)


def _room(point: int, count: int) -> float:
    return 1.0 if point < count else NARROW


def _mean(neighbours: Sequence[int], at: Mapping[int, float], otherwise: float) -> float:
    return sum(at[n] for n in neighbours) / len(neighbours) if neighbours else otherwise
