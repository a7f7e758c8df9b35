"""The tail of a graph: nodes behind a shape that data decides, which onnxruntime runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from onnx import NodeProto

from qglow.graph.graph import Graph, Value
from qglow.importer.opaque import OpaqueNodes, OpaqueTail


@dataclass(frozen=True)
class TailSearch:
    """Search for the tail of a model whose nodes are imported.

    nodes: in the order in which they were imported. known: the value of a name, None where it has no static
    type. views: positions of nodes that stand for something else, and cannot run by themselves.
    """

    nodes: Sequence[NodeProto]
    opaque: OpaqueNodes
    known: Callable[[str], Value | None]
    views: Collection[int]

    def tail_of(self, outputs: Sequence[str]) -> OpaqueTail | None:
        """The nodes that compute outputs of the model without a static type; None without such outputs.

        Raises CannotImport where onnxruntime cannot execute them.
        """
        pending = [name for name in outputs if self.opaque.is_pending(name)]
        if not pending:
            return None
        return self.opaque.tail(pending, [n for n in outputs if n not in pending], self._may_move)

    def _may_move(self, index: int, ordered: bool) -> bool:
        """Whether a node may run in onnxruntime with those around it: none that could be quantized.

        Of those that come behind an order, none that sums products.
        """
        if index in self.views:
            return False
        values = [value for name in self.nodes[index].output if (value := self.known(name)) is not None]
        operators = [None if value.producer is None else value.producer.operator for value in values]
        if ordered:
            return not any(one is not None and (one.sums_products or one.recurs) for one in operators)
        return all(
            (one is not None and one.hosted is not None)
            or not (value.type.is_float or value.type.is_quantized)
            for value, one in zip(values, operators, strict=True)
        )


def add_tail(graph: Graph, tail: OpaqueTail, nodes: Sequence[str], outputs: Sequence[str]) -> set[str]:
    """Give a graph a tail, and take from it what only the tail has read; return names of nodes taken.

    nodes: names of the tail's nodes. outputs: of the whole model.
    """
    known = (*graph.inputs, *graph.outputs)
    graph.outputs += [value for value in dict.fromkeys(tail.operands) if value not in known]
    graph.tail = tail.hosted(nodes, outputs)
    removed = set()
    for node in reversed(list(graph.nodes)):
        if not any(value.uses or graph.is_output(value) for value in node.outputs):
            graph.remove(node)
            removed.add(node.name)
    return removed
