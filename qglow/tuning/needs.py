"""Precisions of nodes that are needed so that a value of an int8 graph is no longer rounded to int8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.assign import needs_narrow
from qglow.quantization.placement import reads_wide
from qglow.quantization.report import is_int8
from qglow.tuning.costs import placed_nodes
from qglow.tuning.mix import Precision

Needs = dict[Node, Precision]
"""Least precision that each node needs."""


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A value that is rounded, with needs for it to be float and to be int16.

    moved: the value itself and all values that data movement makes of its integers.
    """

    value: Value
    moved: tuple[Value, ...]
    to_float: Needs
    to_int16: Needs

    @staticmethod
    def of(value: Value) -> Place:
        """Return the place of one of the values of `int8_values`."""
        return Place(value, tuple(moved_from(value)), float_needs(value), int16_needs(value))

    @property
    def nodes(self) -> Iterable[Node]:
        """The nodes on whose precision it depends whether the value is rounded to int8."""
        read = (node for moved in self.moved for node in readers(moved))
        return dict.fromkeys([*read, *self.to_float, *self.to_int16])


def float_needs(value: Value) -> Needs:
    """Return needs for the value to be float: readers are float, and the producer unless it sums products."""
    needs = {node: Precision.FLOAT for moved in moved_from(value) for node in readers(moved)}
    producer = value.producer
    if producer is None or not is_int8(producer) or producer.operator.rescales:
        return needs
    if not producer.operator.sums_products:
        needs[producer] = Precision.FLOAT
    return needs


def int16_needs(value: Value) -> Needs:
    """Return needs for the value to be int16: of its producer, and of readers that would read it as int8.

    A node without an int16 form has to be float instead.
    """
    source = _source(value)
    needs = {} if source is None else {source: _widened(source)}
    for moved in moved_from(value):
        for node in readers(moved):
            if needs_narrow(node) or node.operator.unifies:
                needs[node] = _widened(node)
    if source is None or not reads_wide(source):
        # A value that is computed in float becomes int16 only for readers that are int16 themselves.
        needs |= {node: _widened(node) for node in readers(value)}
    return needs


def widest(graph: Graph) -> tuple[str, ...]:
    """Names of all nodes of an int8 graph that have an int16 form, those of regions behind their paths."""
    return tuple(each.name for each in placed_nodes(graph) if is_int8(each.node) and reads_wide(each.node))


def readers(value: Value) -> Iterator[Node]:
    """Yield the int8 nodes that compute with a value, directly or after a rescale."""
    for node in value.users():
        if node.operator.rescales:
            yield from readers(node.output)
        elif is_int8(node) and not node.operator.reads_integers:
            yield node


def moved_from(value: Value) -> list[Value]:
    """Return the value, and all values that hold nothing but its integers, moved."""
    found = [value]
    for current in found:
        for node in current.users():
            same = (v for v in node.outputs if v.type.quantization == value.type.quantization)
            found += [v for v in same if _moves(node) and v not in found]
    return found


def carried_by(node: Node) -> Value | None:
    """Return the operand whose precision a rescale or data movement passes on; None for other nodes."""
    if node.operator.rescales:
        return node.inputs[0]
    kept = node.operator.kept_operand
    return None if kept is None else node.inputs[kept]


def _source(value: Value) -> Node | None:
    """Return the int8 node that computes a value, before data movement and rescales.

    Returns None if the value comes from a float node or is an input of the graph.
    """
    producer = value.producer
    if producer is None or not is_int8(producer):
        return None
    carried = carried_by(producer)
    return producer if carried is None else _source(carried)


def _widened(node: Node) -> Precision:
    return Precision.INT16 if reads_wide(node) else Precision.FLOAT


def _moves(node: Node) -> bool:
    return node.operator.passes_integers_on
