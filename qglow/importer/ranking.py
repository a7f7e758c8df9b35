"""Import of places and first elements. https://onnx.ai/onnx/operators/ ArgMax, ArgMin, TopK"""

from __future__ import annotations

from qglow.graph.ops.ranking import ArgMax, ArgMin, FirstPlace, TopK, TopKIndices
from qglow.importer.node import ImportNode, ImportRule


def _place(operator: type[FirstPlace]) -> ImportRule:
    def rule(node: ImportNode) -> None:
        axis = node.axis(node.integer("axis", 0), node.rank())
        keepdims, last = node.integer("keepdims", 1) != 0, node.integer("select_last_index", 0) != 0
        node.emit(operator(axis, keepdims, last), node.value(0))

    return ImportRule(rule, newest=13)


def import_top_k(node: ImportNode) -> None:
    """Import TopK; how many is an attribute before opset 10. What may come unsorted comes sorted."""
    axis = node.axis(node.integer("axis", -1), node.rank())
    largest = node.integer("largest", 1) != 0
    node.integer("sorted", 1)
    k = node.integer("k", 0) if node.opset < 10 else int(node.scalar(1, "how many", 0))
    extent = node.kind().shape[axis]
    node.require(0 <= k <= extent, f"k is {k}, and axis {axis} has {extent} elements")
    if node.is_used(0) or not node.is_used(1):
        node.emit(TopK(axis=axis, k=k, largest=largest), node.value(0))
    if node.is_used(1):
        node.emit(TopKIndices(axis=axis, k=k, largest=largest), node.value(0), output=1)


RULES: dict[str, ImportRule] = {
    "ArgMax": _place(ArgMax),
    "ArgMin": _place(ArgMin),
    "TopK": ImportRule(import_top_k, newest=24),
}
