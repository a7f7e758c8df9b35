"""Nodes whose operands are all constant are replaced by their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.graph.folding import LARGEST_RESULT, evaluate_constant_node, is_too_large
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.rewriting import Outcome, RewritePass


@dataclass(frozen=True)
class FoldConstants(RewritePass):
    """Evaluate nodes that do not depend on the graph's inputs, arithmetic on shapes included."""

    name: ClassVar[str] = "fold-constants"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Replace the results of one node by constants of the same names."""
        if is_too_large(node):
            return Refused(f"the result has more than {LARGEST_RESULT} bytes")
        try:
            results = evaluate_constant_node(node)
        except IndexError as error:
            return Refused(str(error))
        if results is None:
            return None
        for value, data in zip(node.outputs, results, strict=True):
            graph.replace_value(value, Value(value.name, value.type, data))
        graph.remove(node)
        return f"{node.operator.name} of constants evaluated"
