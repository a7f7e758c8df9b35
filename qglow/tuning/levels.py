"""Values still rounded to int8, and estimated cycles, if some nodes of an int8 graph had more precision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.assign import needs_narrow
from qglow.quantization.report import is_int8
from qglow.tuning.costs import PlacedNode, placed_nodes
from qglow.tuning.mix import Precision
from qglow.tuning.needs import Place, carried_by, readers

Cycles = Mapping[Precision, Mapping[str, float]]
"""Cycles by name of the node, for each precision with all nodes in it that can be. INT8 is always there."""

_CONVERTED_A_CYCLE = 4.0
"""Elements that are converted between int8, int16 and float in a cycle, approximately."""

INT8, INT16, FLOAT = Precision


class Levels:
    """Precisions of the nodes of an int8 graph, immutable; answers are computed anew each time."""

    def __init__(
        self, precisions: Mapping[Node, Precision], cycles: Cycles, placed: Mapping[Node, PlacedNode]
    ) -> None:
        self._precisions = precisions
        self._cycles = cycles
        self._placed = placed

    @staticmethod
    def of(graph: Graph, cycles: Cycles) -> Levels:
        """Return the precisions that the nodes of a graph and of its regions have now."""
        placed = {each.node: each for each in placed_nodes(graph)}
        return Levels({node: _present(node) for node in placed if is_int8(node)}, cycles, placed)

    def precision(self, node: Node) -> Precision:
        """Precision that a node computes in; FLOAT for the float nodes of the int8 graph."""
        return self._precisions.get(node, FLOAT)

    def raised(self, needs: Mapping[Node, Precision]) -> dict[Node, Precision]:
        """Return those of `needs` that are above the present precisions of their nodes."""
        return {node: least for node, least in needs.items() if self.precision(node) < least}

    def changed(self, changes: Mapping[Node, Precision]) -> Levels:
        """Return a copy with other precisions for some nodes."""
        return Levels({**self._precisions, **changes}, self._cycles, self._placed)

    def exact(self, place: Place) -> bool:
        """Whether no reader of a value gets it rounded to int8 any more."""
        if all(self.precision(node) is FLOAT for node in place.to_float):
            return True
        return all(self._is_exact(moved) for moved in place.moved)

    def cost(self, nodes: Iterable[Node], values: Iterable[Value]) -> float:
        """Estimate the cycles of nodes together with those of converting values between precisions."""
        converted = sum(self._converted(value) for value in values)
        return sum(self._node_cost(node) for node in nodes) + converted / _CONVERTED_A_CYCLE

    def _is_exact(self, value: Value) -> bool:
        read = {self._read_as(node, value) for node in readers(value)}
        if INT8 in read:
            return False
        return self._is_wide(value) or (self._comes_in_float(value) and read <= {FLOAT})

    def _comes_in_float(self, value: Value) -> bool:
        return value.producer is None or self.precision(value.producer) is FLOAT

    def _is_wide(self, value: Value) -> bool:
        """Whether the value is int16 for those readers that can read int16."""
        producer = value.producer
        if producer is None or self.precision(producer) is FLOAT:
            return any(self.precision(node) is INT16 for node in readers(value))
        carried = carried_by(producer)
        return self.precision(producer) is INT16 if carried is None else self._is_wide(carried)

    def _read_as(self, node: Node, value: Value) -> Precision:
        precision = self.precision(node)
        if precision is FLOAT:
            return FLOAT
        takes_wide = precision is INT16 or not needs_narrow(node)
        return INT16 if takes_wide and self._is_wide(value) else INT8

    def _node_cost(self, node: Node) -> float:
        precision, name, runs = self.precision(node), self._placed[node].name, self._placed[node].runs
        cost = self._cycles[INT8].get(name, 0.0)
        operands = (v for v in node.inputs if v is not None and v.type.is_quantized and not v.is_constant)
        if precision is FLOAT:
            cost = max(self._cycles[FLOAT].get(name, 0.0), cost)
        elif any(self._read_as(node, value) is INT16 for value in operands):
            cost = max(self._cycles.get(INT16, {}).get(name, 0.0), cost)
        elif precision is INT16:
            # Twice the bytes; sums by an instruction more.
            cost += runs * node.output.type.size / _CONVERTED_A_CYCLE
        return cost

    def _converted(self, value: Value) -> int:
        """Number of elements that are converted for the readers of a value in other precisions."""
        if not value.type.is_quantized or value.is_constant:
            return 0
        users = value.users()
        read = {self._read_as(node, value) for node in users}
        size = value.type.size * (self._placed[users[0]].runs if users else 1)
        if self._comes_in_float(value):
            return size * len(read - {FLOAT})
        assert value.producer is not None
        if read == {FLOAT} and value.producer.operator.sums_products:
            return 0  # sums are given in float as they are
        return size * len(read - {INT16 if INT16 in read else INT8})


def _present(node: Node) -> Precision:
    """The precision of a node of an int8 graph that computes on integers."""
    tied = [*node.outputs, *(node.inputs[:1] if node.operator.accumulate is not None else ())]
    kinds = (value.type.quantization for value in tied if value is not None)
    return INT16 if any(kind is not None and kind.is_wide for kind in kinds) else INT8
