"""Products with matrices that indices choose become products of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.experts import ExpertGemm
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
class ExpertProducts(RewritePass):
    """A product of one row by a matrix that Gather copies for it reads the matrix where it lies instead.

    Exporters write mixtures of experts so.
    """

    name: ClassVar[str] = "expert-products"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Turn a product of single rows, or of single columns, by chosen matrices into an ExpertGemm."""
        if not node.operator.multiplies_activations:
            return None
        for place in (0, 1):
            looked_up, x = operand(node, place), operand(node, 1 - place)
            chosen = _chosen(looked_up, x, place)
            if chosen is not None:
                break
        else:
            return None
        if isinstance(chosen, Refused):
            return chosen
        matrices, indices = chosen
        # [experts, K, N], where rows are multiplied from the left.
        data = matrices if place else matrices.swapaxes(1, 2)
        count, depth, columns = data.shape
        beside = np.ascontiguousarray(data.transpose(1, 0, 2).reshape(depth, count * columns))
        weights = new_constant(graph, f"{looked_up.name}.matrices", beside)
        result, outer = node.output, indices.type.shape
        rows = computed_before(graph, node, "rows", Reshape(shape=(*outer, depth)), x)
        change(node, ExpertGemm(count), [rows, weights, indices])
        (kind,) = node.operator.infer(node.input_types())
        give_result(node, Value(graph.unique_name(f"{result.name}.rows"), kind))
        name = graph.unique_name(f"{node.name}.shape")
        graph.insert_after(node, Node(name, Reshape(shape=result.type.shape), [node.output], [result]))
        return f"each row has one of {count} matrices"


def _chosen(looked_up: Value, x: Value, place: int) -> tuple[Array, Value] | Refused | None:
    """The matrices that a Gather chooses from, and its indices, where there is one for each row of x."""
    node = looked_up.producer
    if node is None or not node.operator.looks_up_rows:
        return None
    table, indices = node.inputs
    assert table is not None and indices is not None
    *outer, rows, columns = x.type.shape if len(x.type.shape) > 1 else (0, 0, 0)
    single = rows == 1 if place else columns == 1
    data = table.data
    if data is None or not table.type.is_float or data.ndim != 3 or not single:
        return None
    if tuple(outer) != indices.type.shape or indices.data is not None:
        return None
    if len(looked_up.users()) > 1:
        return Refused(f"matrices %{looked_up.name} are read by other nodes, too")
    return data, indices
