"""Reliance of nodes on elements that are not live."""

from __future__ import annotations

from collections.abc import Callable

from qglow.graph.graph import Value

Place = tuple[Value, int]
"""A value and one of its axes, whose places behind the live ones are meant."""


class Reliance:
    """Places that nodes rely on, and those that these follow from."""

    def __init__(self) -> None:
        self._relied: set[Place] = set()
        self._sources: dict[Place, list[Place]] = {}

    def rely(self, *places: Place) -> None:
        """Note that a node takes what is known of places to be so."""
        self._relied.update(places)

    def follows(self, place: Place, *sources: Place) -> None:
        """Note that what is known of a place follows from what is known of others."""
        self._sources.setdefault(place, []).extend(sources)

    def spread(self, tells: Callable[[Place], bool]) -> set[Place]:
        """All places that something relies on, over any number of nodes. tells: whether anything is known."""
        found: set[Place] = set()
        waiting = list(self._relied)
        while waiting:
            place = waiting.pop()
            if place in found or not tells(place):
                continue
            found.add(place)
            waiting += self._sources.get(place, [])
        return found
