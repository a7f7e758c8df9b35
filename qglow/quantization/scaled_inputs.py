"""Inputs of products that are multiplied by a factor for each element, which the weights make up for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Mul
from qglow.graph.ops.quantize import Quantize
from qglow.graph.rewriting import new_constant, operand

SUFFIX = "__scaled_for_weights"
"""End of the names of the nodes that multiply."""


def row_readers(products: Sequence[Node]) -> list[Node] | None:
    """The nodes that read the float rows of products in blocks that share them.

    They are the products, or what makes integers of the rows; None where others read these integers, too.
    """
    own, readers = set(products), dict[Node, None]()
    for product in products:
        scales = product.operand("row_scales")
        if scales is None:
            readers[product] = None
            continue
        integers = operand(product)
        made = [node for node in (scales.producer, integers.producer) if node is not None]
        if len(made) < 2 or not own.issuperset(integers.users()):
            return None
        rows = operand(made[0])
        readers |= dict.fromkeys(user for user in rows.users() if _leads_to(user, {scales, integers}))
    return list(readers)


def _leads_to(node: Node, ends: set[Value]) -> bool:
    """Whether a node gives one of these values, by way of nodes of one user each."""
    while node.output not in ends:
        users = node.output.users()
        if len(users) != 1 or len(node.outputs) != 1 or isinstance(node.operator, Quantize):
            return False
        (node,) = users
    return True


def scale_input(graph: Graph, rows: Value, readers: Sequence[Node], factors: Array) -> None:
    """Let nodes read a value times float32 factors [K] along its last axis, in place."""
    name = graph.unique_name(f"{rows.name}{SUFFIX}")
    scaled = Value(graph.unique_name(f"{name}_rows"), rows.type)
    factor = new_constant(graph, f"{name}_factors", np.asarray(factors, np.float32))
    node = Node(name, Mul(), (rows, factor), (scaled,))
    if rows.producer is not None:
        graph.insert_after(rows.producer, node)
    else:
        graph.insert_before(next(iter(graph.nodes)), node)
    for reader in readers:
        reader.inputs = tuple(scaled if value is rows else value for value in reader.inputs)


def scale_inputs_as(graph: Graph, known: Graph) -> None:
    """Scale the inputs that were scaled in the graph of the same model in other sizes, in place.

    Raises UnsupportedError where the graph lacks one of them.
    """
    nodes = {node.name: node for node in graph.nodes}
    values = {value.name: value for value in graph.values()}
    for node in known.nodes:
        if SUFFIX not in node.name or not node.operator.multiplicative:
            continue
        rows, factors = operand(node), operand(node, 1).data
        names = [user.name for user in node.output.users()]
        if factors is None or rows.name not in values or not all(name in nodes for name in names):
            raise UnsupportedError(f"'{rows.name}', whose elements are scaled, depends on shapes")
        scale_input(graph, values[rows.name], [nodes[name] for name in names], factors)
