"""Parameters of every int8 value: from the profile where it has its own, else from its neighbours."""

from __future__ import annotations

from collections.abc import Iterable

from qglow.core.passes import PassLog
from qglow.core.types import Quantization
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import SameAs, Unify
from qglow.numerics.schema import Schema
from qglow.quantization.calibration import Range
from qglow.quantization.choices import Choices
from qglow.quantization.placement import data_operands, reads_wide
from qglow.quantization.ranges import Ranges

LARGEST_LOSS = 1.0
"""dB of SQNR that a value may lose for parameters that it shares."""

Assignment = dict[Value, Quantization]
NarrowOperands = dict[tuple[str, int], Quantization]
"""Parameters by name of a node and index of the operand."""


def assign_parameters(graph: Graph, int8: Iterable[Node], ranges: Ranges, log: PassLog) -> Assignment:
    """Return the parameters of every float value that an int8 node reads or gives.

    Operand and result of data movement always share parameters. Operands that had better share them, as
    those that are put together, do so where they lose less than 1 dB, and are rescaled otherwise. A range
    known in advance is never widened. Raises ProfileError for a value without statistics.
    """
    return _Assigner(graph, set(int8), ranges, log).run()


class _Group:
    """Values that share a range. own: the range that each would have alone. fixed: parameters, if known."""

    def __init__(
        self, value: Value, bounds: Range, schema: Schema, fixed: Quantization | None, wide: bool
    ) -> None:
        self.schema = schema
        self.wide = wide
        self.own: dict[Value, Range] = {value: bounds}
        self.range = bounds
        self.fixed = fixed


class _Assigner:
    def __init__(self, graph: Graph, int8: set[Node], ranges: Ranges, log: PassLog) -> None:
        self._nodes = [node for node in graph.nodes if node in int8]
        self._ranges = ranges
        self._log = log
        self._groups: dict[Value, _Group] = {}
        self._wide = _wide_values(self._nodes, ranges.choices)

    def run(self) -> Assignment:
        for node in self._nodes:
            for value in _operands(node):
                self._group(value)
            self._place_result(node)
        return {value: self._parameters(group) for value, group in self._groups.items()}

    def _parameters(self, group: _Group) -> Quantization:
        return group.fixed or self._ranges.parameters(group.range, group.schema, group.wide)

    def _group(self, value: Value) -> _Group:
        """The value's group; one of its own when it has none yet."""
        if value not in self._groups:
            fixed, wide = fixed_parameters(value), value in self._wide
            schema = self._ranges.schema(value)
            if fixed is not None and not wide:
                self._groups[value] = _Group(value, fixed.real_range, schema, fixed, wide)
            else:
                self._groups[value] = _Group(value, self._ranges.of(value, wide), schema, None, wide)
        return self._groups[value]

    def _place_result(self, node: Node) -> None:
        policy, result = node.operator.policy, node.output
        if isinstance(policy, SameAs):
            source = node.inputs[policy.operand]
            assert source is not None
            self._groups[result] = self._group(source)
        elif isinstance(policy, Unify):
            self._unify(node)
        else:
            self._group(result)

    def _unify(self, node: Node) -> None:
        """Merge the groups of operands that lose little in the range of them all, and add the result."""
        groups = list(dict.fromkeys(self._group(value) for value in _operands(node)))
        schema, wide = self._ranges.schema(node.output), node.output in self._wide
        if len(groups) == 1 and groups[0].schema is schema and groups[0].wide is wide:
            self._groups[node.output] = groups[0]
            return
        hull = _hull(groups)
        sharing = []
        for group in groups:
            refusal = self._refusal(group, hull, schema, wide)
            if refusal is None:
                sharing.append(group)
            else:
                self._log.refused(node.name, refusal)
        if sharing:
            self._groups[node.output] = self._merge(sharing, hull)
        else:
            self._group(node.output)

    def _refusal(self, group: _Group, hull: Range, schema: Schema, wide: bool) -> str | None:
        names = ", ".join(f"'{value.name}'" for value in group.own)
        if group.fixed is not None:
            return f"{names} has a range known in advance, which is not widened"
        if group.wide is not wide:
            return f"{names} is int{16 if group.wide else 8}, and the result int{16 if wide else 8}"
        if group.schema is not schema:
            return f"{names} has the schema {group.schema.name}, and the result {schema.name}"
        loss = self._worst_loss(group, hull)
        if loss < LARGEST_LOSS:
            return None
        return f"{names} would lose {loss:.1f} dB in the range of all operands"

    def _worst_loss(self, group: _Group, hull: Range) -> float:
        return max(self._ranges.loss(value, own, hull, group.wide) for value, own in group.own.items())

    def _merge(self, groups: list[_Group], hull: Range) -> _Group:
        first = groups[0]
        first.range = hull
        for other in groups[1:]:
            first.own.update(other.own)
            members = [value for value, group in self._groups.items() if group is other]
            self._groups.update(dict.fromkeys(members, first))
        return first


def _wide_values(nodes: Iterable[Node], choices: Choices) -> set[Value]:
    """Return the values that are int16: results of int16 nodes, and what they read from float nodes.

    Inputs of the model for which int16 is chosen are too. Data movement passes on the type of what it reads,
    whatever is chosen for it.
    """
    integer, wide = {value for node in nodes for value in node.outputs}, set[Value]()
    for node in nodes:
        if choices.of_node(node).wide:
            wide.update(node.outputs)
            wide.update(value for value in _operands(node) if value not in integer)
        wide.update(v for v in _operands(node) if v.producer is None and choices.of_value(v).wide)
    return wide


def narrow_operands(nodes: Iterable[Node], assignment: Assignment, ranges: Ranges) -> NarrowOperands:
    """Return int8 parameters for the int16 operands of int8 nodes that read int8 only.

    These are mainly sums of products, for which int16 operands would be twice the work, and tables.
    """
    found: NarrowOperands = {}
    for node in nodes:
        if ranges.choices.of_node(node).wide or not needs_narrow(node):
            continue
        for index in data_operands(node):
            value = node.inputs[index]
            if value is not None and assignment[value].is_wide:
                own = ranges.parameters(ranges.of(value), ranges.schema(value))
                found[node.name, index] = fixed_parameters(value) or own
    return found


def needs_narrow(node: Node) -> bool:
    """Whether an int8 node reads int8 only."""
    return node.operator.accumulate is not None or not reads_wide(node)


def fixed_parameters(value: Value) -> Quantization | None:
    """int8 parameters of a value whose range is known in advance; None for all others."""
    fixed = None if value.producer is None else value.producer.operator.fixed
    return None if fixed is None else Quantization.per_tensor(fixed.scale, fixed.zero_point)


def _operands(node: Node) -> list[Value]:
    values = [node.inputs[index] for index in data_operands(node) if index < len(node.inputs)]
    return [value for value in values if value is not None]


def _hull(groups: Iterable[_Group]) -> Range:
    ranges = [group.range for group in groups]
    return min(low for low, _ in ranges), max(high for _, high in ranges)
