"""Values inside of bodies while a graph runs, round by round."""

from __future__ import annotations

from collections.abc import Mapping

from qglow.core.types import Array
from qglow.graph.graph import Graph, Value, nested
from qglow.graph.interpreter import Interpreter

MOST = 64
"""Rounds of each body that are kept of a run: the first ones."""

Round = dict[str, Array]
"""All values of a region in one round, by their names there."""


class BodyRounds:
    """A graph that the interpreter runs, to see what is computed inside of its regions."""

    def __init__(self, graph: Graph) -> None:
        self._interpreter = Interpreter(graph)
        self._places: dict[Value, str] = {}
        self._firsts: set[Value] = set()
        for path, region in nested(graph):
            if not path:
                continue
            computed = [*region.inputs, *(value for node in region.nodes for value in node.outputs)]
            self._places.update(dict.fromkeys(computed, path))
            self._firsts.update(computed[:1])

    def run(self, inputs: Mapping[str, Array]) -> dict[str, list[Round]]:
        """The rounds of each region in one run, by the region's path, in the order in which they came."""
        found: dict[str, list[Round]] = {path: [] for path in self._places.values()}
        over: set[str] = set()

        def tap(value: Value, array: Array) -> None:
            path = self._places.get(value)
            if path is None or path in over:
                return
            rounds = found[path]
            if value in self._firsts:
                if len(rounds) == MOST:
                    over.add(path)
                    return
                rounds.append({})
            rounds[-1][value.name] = array

        self._interpreter.run(inputs, tap)
        return found
