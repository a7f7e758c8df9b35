"""Look-ups in a table whose transpose another node reads: both read the same memory then.

A language model may multiply its last rows by the table in which it looks up its tokens. Exporters store that
table twice, once transposed. Weights of products are packed for their kernels, from which single columns can
be taken as well, so it is the look-up that changes. No bit does. Profiles, reports and exported models do not
see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.shape import Transpose
from qglow.graph.rewriting import Outcome, RewritePass, change, operand

LEAST_BYTES = 1 << 14
"""Bytes of a table below which a copy costs less than look-ups of columns."""
ROWS_AT_ONCE = 256
"""Rows that are compared at once, so that both stay in a cache."""


@dataclass(frozen=True)
class ShareTables(RewritePass):
    """Let look-ups of rows of constant tables of at least so many bytes read the columns of equal weights."""

    name: ClassVar[str] = "share-tables"

    least_bytes: int = LEAST_BYTES

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Change one look-up, if its table is the transpose of constants that another node reads."""
        if node.operator.table_blocks is None and not node.operator.looks_up_rows:
            return None
        table = node.inputs[0]
        if table is None or table.data is None or table.data.ndim != 2:
            return None
        if table.type.byte_size < self.least_bytes:
            return None
        if node.operator.table_blocks is not None:
            return _share_blocks(node, graph)
        other = next((v for v in _constants(graph, table) if is_transpose(table.data, v.data)), None)
        if other is None:
            return Refused(f"nothing else reads the transpose of '{table.name}'")
        _read_columns(graph, node, other, table)
        return f"it reads columns of '{other.name}', which are the rows of '{table.name}'"


def is_transpose(table: Array, other: Array | None) -> bool:
    """Whether both have the same bits, with the axes of one exchanged."""
    if other is None or other.dtype != table.dtype or other.shape != table.shape[::-1]:
        return False
    bits = f"u{table.itemsize}"
    rows, columns = table.view(bits), other.view(bits)
    starts = range(0, len(rows), ROWS_AT_ONCE)
    parts = (slice(start, start + ROWS_AT_ONCE) for start in starts)
    return all(np.array_equal(rows[part], columns[:, part].T) for part in parts)


def _constants(graph: Graph, table: Value) -> Iterator[Value]:
    """Constant matrices that any node but a look-up of their rows reads."""
    for node in graph.nodes:
        for value in node.inputs:
            if value is None or value is table or value.data is None or value.data.ndim != 2:
                continue
            if not (value is node.inputs[0] and node.operator.looks_up_rows):
                yield value


def _read_columns(graph: Graph, node: Node, other: Value, table: Value) -> None:
    """Let a look-up choose columns, and turn what it gives into rows."""
    indices, rows = operand(node, 1), node.output
    if other.type.quantization != table.type.quantization and other.data is not None:
        # Weights have scales of their own; the table stands for the plain integers.
        other = constant(graph.unique_name(f"{other.name}.columns"), other.data, table.type.quantization)
    change(node, Gather(axis=1), [other, indices])
    extents, depth = indices.type.shape, other.type.shape[0]
    columns = Value(graph.unique_name(f"{rows.name}.columns"), rows.type.with_shape((depth, *extents)))
    order = (*range(1, len(extents) + 1), 0)
    turned = Node(graph.unique_name(f"{node.name}.rows"), Transpose(perm=order), [columns], [rows])
    node.outputs = (columns,)
    columns.producer, columns.index = node, 0
    graph.insert_after(node, turned)


def _share_blocks(node: Node, graph: Graph) -> Outcome:
    """Change a look-up in blocks, if codes, scales and zero points are those of one product."""
    by_columns = node.operator.of_columns()
    wanted = [node.operand(name) for name in ("table", "scales", "zero_points")]
    for other in graph.nodes:
        if by_columns is None or other.operator.weight_blocks != node.operator.table_blocks:
            continue
        weights = [other.operand(name) for name in ("w", "scales", "zero_points")]
        if all(_same(own, theirs) for own, theirs in zip(wanted, weights, strict=True)):
            table, scales, zeros = weights
            change(node, by_columns, [table, operand(node, 1), scales, *([] if zeros is None else [zeros])])
            return f"it reads the weights of '{other.name}', which are its table"
    return Refused(f"no product has the weights of '{node.name}'")


def _same(own: Value | None, theirs: Value | None) -> bool:
    if own is None or theirs is None:
        return own is theirs
    return own.data is not None and is_transpose(own.data, theirs.data)
