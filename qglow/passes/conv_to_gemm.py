"""Linear layers that exporters write as convolutions of one place become products of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.shape import Reshape, Transpose
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
        """Turn a convolution of images of one place, between nodes that only move, into a Gemm."""
        operator = node.operator
        if not isinstance(operator, Conv):
            return None
        x, w = operand(node, 0), operand(node, 1)
        sizes = (*x.type.shape[2:], *w.type.shape[2:], *node.output.type.shape[2:])
        if set(sizes) != {1} or operator.group != 1 or not _is_moved(node, graph):
            return None
        if w.data is None:
            return Refused(f"weights %{w.name} are not constant")
        matrix = new_constant(graph, f"{w.name}.matrix", w.data[:, :, 0, 0].T)
        result = node.output
        rows = computed_before(graph, node, "rows", Reshape(shape=x.type.shape[:2]), x)
        change(node, Gemm(lo=operator.lo, hi=operator.hi), [rows, matrix, node.operand("bias")])
        (kind,) = node.operator.infer(node.input_types())
        product = Value(graph.unique_name(f"{result.name}.rows"), kind)
        give_result(node, product)
        restore = Reshape(shape=result.type.shape)
        graph.insert_after(node, Node(graph.unique_name(f"{node.name}.shape"), restore, [product], [result]))
        return "Conv of one place becomes Gemm"


def _is_moved(node: Node, graph: Graph) -> bool:
    """Whether what a convolution reads and makes is only moved, so that nothing sees an image there."""
    source, users = operand(node, 0).producer, node.output.users()
    moves = (Reshape, Transpose)
    before = source is None or isinstance(source.operator, moves)
    return before and not graph.is_output(node.output) and all(isinstance(u.operator, moves) for u in users)
