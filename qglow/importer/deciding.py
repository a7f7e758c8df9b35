"""Inputs that decide: their values give parameters that the import needs as constants.

A parameter decides shapes (where to cut, how often to repeat) or what a node is. The import asks for it
when it imports the node; where it is computed, the inputs that it is computed from are those that decide.
None does where layers of the network are in between, as where durations of phonemes are predicted, and none
where a text does: words that a model picks out of it by marks are others in every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from qglow.core.types import ElementType, TensorType
from qglow.graph.graph import Node, Value

MOST_BYTES = 1 << 16
"""Bytes of an input that may decide: what is larger is data."""


class DecidingInputs:
    """The inputs of one import that decide; `none`: whether all of them are data."""

    def __init__(self, inputs: Mapping[str, TensorType], none: bool = False) -> None:
        self._inputs = {} if none else inputs
        self._stand_ins: dict[str, tuple[str, ...]] = {}
        self._found: dict[str, None] = {}
        self._open: set[int] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs that decide, in the model's order."""
        return tuple(name for name in self._inputs if name in self._found)

    @property
    def positions(self) -> set[int]:
        """Positions of the nodes that can be imported once these inputs are known."""
        return self._open

    def behind(self, value: Value | None) -> tuple[str, ...]:
        """Names of the inputs that a value is computed from; none where one of them is data, no parameter."""
        if value is None:
            return ()
        found = list(dict.fromkeys(self._leaves(value)))
        return () if None in found else tuple(name for name in found if name is not None)

    def is_text(self, nodes: Iterable[Node]) -> bool:
        """Whether one of those that decide is a text: these nodes look it up in a table of reals."""
        read = [node.inputs[:2] for node in nodes if node.operator.looks_up_rows]
        return any(
            table is not None and table.is_constant and table.type.is_float and name in self._found
            for table, rows in read
            if rows is not None
            for name in self._leaves(rows)
        )

    def note(self, names: tuple[str, ...], position: int | None = None) -> None:
        """Note inputs that decide, and the node that is a problem without them."""
        self._found.update(dict.fromkeys(names))
        if names and position is not None:
            self._open.add(position)

    def stand_in(self, name: str, names: tuple[str, ...]) -> None:
        """Note that a value takes the place of what a node gives that these inputs decide."""
        self._stand_ins[name] = names

    def checkpoint(self) -> tuple[set[str], set[int]]:
        """A state that `take_back` returns to."""
        return set(self._found), set(self._open)

    def take_back(self, state: tuple[set[str], set[int]]) -> tuple[str, ...]:
        """Return to an earlier state; the names that were noted since."""
        names, self._open = state
        since = tuple(name for name in self._found if name not in names)
        self._found = {name: None for name in self._found if name in names}
        return since

    def _leaves(self, value: Value) -> Iterator[str | None]:
        """Names of the inputs behind a value, and None for what cannot decide, such as results of layers."""
        waiting, seen = [value], {value}
        while waiting:
            current = waiting.pop()
            if current.producer is not None and _is_layer(current.producer):
                yield None
            elif current.producer is not None:
                new = {each for each in current.producer.inputs if each is not None} - seen
                seen |= new
                waiting += new
            elif current.name in self._stand_ins:
                yield from self._stand_ins[current.name] or (None,)
            elif current.name in self._inputs:
                yield current.name if may_decide(current.type) else None
            elif not current.is_constant:
                yield None


def may_decide(kind: TensorType) -> bool:
    """Whether an input of this type is a parameter: integers, or a list of reals, that are few."""
    whole = kind.is_plain_integer or kind.element is ElementType.BOOL
    return kind.byte_size <= MOST_BYTES and (whole or len(kind.shape) <= 1)


def _is_layer(node: Node) -> bool:
    """Whether a node is a layer of a network: what decides through one is data, such as a spoken text."""
    return node.operator.sums_products or node.operator.recurs is not None
