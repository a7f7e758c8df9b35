"""What has to change around a value of an int8 graph so that it is rounded to int8 no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Accumulate, Products, ReadsIntegers, SameAs, Unify
from qglow.graph.ops.quantize import Rescale
from qglow.quantization.assign import needs_narrow
from qglow.quantization.placement import reads_wide
from qglow.quantization.report import is_int8
from qglow.tuning.mix import Precision

Needs = dict[Node, Precision]
"""The least precision that each of some nodes has to have."""


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A value that is rounded, all that moves its integers on, and what it would take to be more exact."""

    value: Value
    moved: tuple[Value, ...]
    to_float: Needs
    to_int16: Needs

    @staticmethod
    def of(value: Value) -> Place:
        """That of a value that `int8_values` gives."""
        return Place(value, tuple(moved_from(value)), float_needs(value), int16_needs(value))

    @property
    def nodes(self) -> Iterable[Node]:
        """The nodes whose precision makes it more or less exact."""
        read = (node for moved in self.moved for node in readers(moved))
        return dict.fromkeys([*read, *self.to_float, *self.to_int16])


def float_needs(value: Value) -> Needs:
    """For the value to be float: all that read it are, and what computes it where that is no sum."""
    needs = {node: Precision.FLOAT for moved in moved_from(value) for node in readers(moved)}
    producer = value.producer
    if producer is None or not is_int8(producer) or isinstance(producer.operator, Rescale):
        return needs
    if not isinstance(producer.operator.policy, Accumulate | Products):
        needs[producer] = Precision.FLOAT
    return needs


def int16_needs(value: Value) -> Needs:
    """For the value to be int16: what computes it is, and what would read int8 of it else.

    What has no int16 form has to be float instead.
    """
    source = _source(value)
    needs = {} if source is None else {source: _widened(source)}
    for moved in moved_from(value):
        for node in readers(moved):
            if needs_narrow(node) or isinstance(node.operator.policy, Unify):
                needs[node] = _widened(node)
    if source is None or not reads_wide(source):
        # A value that is given in float is int16 for the int16 nodes that read it.
        needs |= {node: _widened(node) for node in readers(value)}
    return needs


def widest(graph: Graph) -> tuple[str, ...]:
    """Names of all nodes of an int8 graph that have an int16 form."""
    return tuple(node.name for node in graph.nodes if is_int8(node) and reads_wide(node))


def readers(value: Value) -> Iterator[Node]:
    """The int8 nodes that compute with a value, also on another scale."""
    for node in value.users():
        if isinstance(node.operator, Rescale):
            yield from readers(node.output)
        elif is_int8(node) and not isinstance(node.operator.policy, ReadsIntegers):
            yield node


def moved_from(value: Value) -> list[Value]:
    """The value, and those that only move its integers on."""
    found = [value]
    for current in found:
        for node in current.users():
            same = (v for v in node.outputs if v.type.quantization == value.type.quantization)
            found += [v for v in same if _moves(node) and v not in found]
    return found


def carried_by(node: Node) -> Value | None:
    """The operand whose precision a node passes on, whatever its own: of data movement and rescales."""
    if isinstance(node.operator, Rescale):
        return node.inputs[0]
    policy = node.operator.policy
    return node.inputs[policy.operand] if isinstance(policy, SameAs) else None


def _source(value: Value) -> Node | None:
    """The int8 node that computes a value; None where it comes from float or from the caller."""
    producer = value.producer
    if producer is None or not is_int8(producer):
        return None
    carried = carried_by(producer)
    return producer if carried is None else _source(carried)


def _widened(node: Node) -> Precision:
    return Precision.INT16 if reads_wide(node) else Precision.FLOAT


def _moves(node: Node) -> bool:
    return isinstance(node.operator.policy, SameAs | Unify)
