"""Repeated computations are done once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.graph.graph import Graph, Node, Value


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass[Graph]):
    """Nodes of equal operators over equal operands share the first one's results.

    Constants are equal by content. Operands of commutative operators may be swapped.
    """

    name: ClassVar[str] = "eliminate-common-subexpressions"

    def run(self, ir: Graph, log: PassLog) -> None:
        """Visit nodes in order: a node's operands are already shared when it is looked at."""
        seen: dict[Hashable, list[Node]] = {}
        for node in list(ir.nodes):
            if log.exhausted:
                return
            if not node.outputs:
                continue
            twins = seen.setdefault(_key(node), [])
            twin = next((other for other in twins if _equal_constants(node, other)), None)
            if twin is None:
                twins.append(node)
            elif any(ir.is_output(value) for value in node.outputs):
                log.refused(node.name, f"%{node.output.name} is an output of the graph")
            else:
                _share(ir, node, twin)
                log.applied(node.name, f"{node.operator.name} computes what '{twin.name}' computes")


def _share(graph: Graph, node: Node, twin: Node) -> None:
    for old, new in zip(node.outputs, twin.outputs, strict=True):
        graph.replace_value(old, new)
    graph.remove(node)


def _key(node: Node) -> Hashable:
    """Key of a node: equal for equal computations; constants count by type only."""
    return node.operator, tuple(_operand_key(v) for v in _ordered(node)), tuple(node.output_types())


def _operand_key(value: Value | None) -> Hashable:
    return value.type if value is not None and value.is_constant else value


def _ordered(node: Node) -> list[Value | None]:
    """Operands; those of a commutative operator are sorted, with constants last."""
    operands = list(node.inputs)
    if node.operator.commutative:
        operands.sort(key=lambda v: (v is None or v.is_constant, id(v)))
    return operands


def _equal_constants(node: Node, other: Node) -> bool:
    pairs = zip(_ordered(node), _ordered(other), strict=True)
    return all(_same_content(a, b) for a, b in pairs if a is not None and b is not None)


def _same_content(a: Value, b: Value) -> bool:
    if a.data is None or b.data is None or a.data is b.data:
        return True
    # Bytes, because 0.0 and -0.0 differ as operands and NaN equals itself.
    return a.data.tobytes() == b.data.tobytes()
