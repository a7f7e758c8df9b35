"""Tables of embeddings in int8, with a scale for each row.

Rows of a table reach differently far, and a lookup takes few of them: each gets a scale of its own. The table
is divided by the largest magnitude of each row, which a second lookup fetches to multiply the result by. The
divided table is int8 with one scale, so that its rows have 255 levels each; all of it is made of usual nodes.
"""

from __future__ import annotations

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.elementwise import Mul
from qglow.quantization.choices import Choices
from qglow.quantization.placement import FloatReasons

PASS = "table-rows"
NARROWEST = 8
"""Least number of elements of a row for which a scale of its own pays."""
SCALE, PRODUCT = ".scale", ".rows"
"""Endings of names of the look-up of scales, and of the multiplication by them."""
REASON = "transformer: it multiplies rows of an int8 table by their scales"


def scale_table_rows(
    graph: Graph, reasons: FloatReasons, fixed: frozenset[Node], choices: Choices, log: PassLog
) -> None:
    """Make lookups int8 that the scheme wants to be, in place; what multiplies by scales joins `reasons`.

    fixed: nodes that stay float for other reasons than cost.
    """
    log.pass_name = PASS
    for node in list(graph.nodes):
        if log.exhausted:
            return
        if node not in reasons or node in fixed or not choices.of_node(node).by_rows:
            continue
        table = node.inputs[0]
        if table is None or table.data is None or not _suits(table.data):
            log.refused(node.name, "the table is narrow, or not all of it is finite")
            continue
        reasons.update(dict.fromkeys(_split(graph, node, table.name, table.data), REASON))
        del reasons[node]
        log.applied(node.name, f"each row of '{table.name}' has a scale of its own", exact=False)


def table_of(name: str) -> str | None:
    """The lookup whose rows a node of this name multiplies by their scales; None for other nodes."""
    return name.removesuffix(PRODUCT) if name.endswith(PRODUCT) else None


def _suits(table: Array) -> bool:
    wide = table.ndim == 2 and table.shape[1] >= NARROWEST and table.size > 0
    return wide and bool(np.all(np.isfinite(table)))


def _split(graph: Graph, node: Node, name: str, table: Array) -> tuple[Node, Node]:
    """Let a node look up a table of unit rows; return the lookup of scales and the multiplication."""
    largest = np.max(np.abs(table), axis=1, keepdims=True).astype(np.float32)
    scales = np.where(largest >= np.finfo(np.float32).tiny, largest, np.float32(1.0))
    indices, looked_up = node.inputs[1], node.output
    real = Value(graph.unique_name(f"{looked_up.name}.levels"), looked_up.type)
    graph.replace_value(looked_up, real)
    looked_up.name, real.name = real.name, looked_up.name
    unit = constant(graph.unique_name(f"{name}.unit"), np.asarray(table / scales, np.float32))
    node.inputs = [unit, indices]
    column = constant(graph.unique_name(f"{name}.scales"), scales)
    kind = looked_up.type.with_shape((*looked_up.type.shape[:-1], 1))
    chosen = Value(graph.unique_name(f"{real.name}.scale"), kind)
    lookup = Node(graph.unique_name(f"{node.name}{SCALE}"), node.operator, [column, indices], [chosen])
    product = Node(graph.unique_name(f"{node.name}{PRODUCT}"), Mul(), [looked_up, chosen], [real])
    graph.insert_after(node, lookup)
    graph.insert_after(lookup, product)
    return lookup, product
