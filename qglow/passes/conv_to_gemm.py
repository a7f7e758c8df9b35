"""Linear layers that exporters write as convolutions of one place become products of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.shape import Reshape
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    change,
    computed_before,
    give_result,
    new_constant,
    operand,
)


@dataclass(frozen=True)
class ConvToGemm(RewritePass):
    """A Gemm can measure its rows while the model runs, and have weights in blocks."""

    name: ClassVar[str] = "conv-to-gemm"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Turn a convolution of images of one place into a Gemm, where these come from rows and become rows.

        Others, such as those that weigh the channels of larger images, stay what they are.
        """
        filters = node.operator.filters
        if filters is None:
            return None
        x, w, result = operand(node, 0), operand(node, 1), node.output
        images = all(len(v.type.shape) == 4 and set(v.type.shape[2:]) == {1} for v in (x, w, result))
        if not images or w.type.size != x.type.shape[1] * result.type.shape[1]:
            return None
        if not (_is_from_rows(node) and _is_for_rows(node)):
            return None
        if w.data is None:
            return Refused(f"weights %{w.name} are not constant")
        lo, hi = node.operator.bounds
        matrix = new_constant(graph, f"{w.name}.matrix", filters.rows(w.data)[0, :, :, 0].T)
        rows = computed_before(graph, node, "rows", Reshape(shape=x.type.shape[:2]), x)
        change(node, Gemm(lo=lo, hi=hi), [rows, matrix, node.operand("bias")])
        (kind,) = node.operator.infer(node.input_types())
        give_result(node, Value(graph.unique_name(f"{result.name}.rows"), kind))
        restore = Reshape(shape=result.type.shape)
        name = graph.unique_name(f"{node.name}.shape")
        graph.insert_after(node, Node(name, restore, [node.output], [result]))
        return "a convolution of one place becomes a Gemm"


def _is_from_rows(node: Node) -> bool:
    """Whether what a convolution reads is made of rows that were moved, or of inputs, one place at a time."""

    def before(node: Node) -> Iterable[Node]:
        values = (v for v in node.inputs if v is not None)
        return (v.producer for v in values if v.producer is not None)

    return _is_within(node, before)


def _is_for_rows(node: Node) -> bool:
    """Whether what a convolution makes becomes rows, or outputs, one place at a time."""
    return _is_within(node, lambda node: (user for value in node.outputs for user in value.users()))


def _is_within(node: Node, beside: Callable[[Node], Iterable[Node]]) -> bool:
    """Whether all nodes on one side of a node compute each place alone, as far as those that only move."""
    waiting, seen = [*beside(node)], {node}
    while waiting:
        other = waiting.pop()
        if other in seen or other.operator.rearranges:
            continue
        seen.add(other)
        alone = other.operator.elementwise or other.operator.aligned or other.operator.filters is not None
        if not alone or any(set(value.type.shape[2:]) != {1} for value in other.outputs):
            return False
        waiting += beside(other)
    return True
