"""Tables that are the weights of a product, as those of a language model's head: both get the same integers.

Both are one tensor of the model and stay one: programs hold it once. What a look-up then gives are the rows
as the product has them, float32 `integer * scale`, or those of blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array, Quantization
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.blocks import BlockGather
from qglow.graph.ops.elementwise import Mul
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.quantize import Dequantize
from qglow.graph.ops.rows import THEMSELVES
from qglow.graph.rewriting import change, new_constant, operand
from qglow.graph.traits import BlockForm
from qglow.passes.share_tables import LEAST_BYTES, is_transpose
from qglow.quantization.dynamic import column_scales
from qglow.quantization.table_rows import PRODUCT, SCALE

PASS = "tie-tables"
REASON = "its table is the weights of a product, whose scales rows are multiplied by"


@dataclass(frozen=True)
class Tie:
    """A product that multiplies by the rows of a table. weights: its weights [K, N], in float."""

    product: str
    weights: Value


def tables_of(graph: Graph) -> dict[str, Array]:
    """Tables of float whose rows are looked up, by name of the node."""
    found = {}
    for node in graph.nodes:
        table = node.inputs[0] if node.operator.looks_up_rows else None
        if table is None or table.data is None or not table.type.is_float or table.data.ndim != 2:
            continue
        if table.type.byte_size >= LEAST_BYTES:
            found[node.name] = table.data
    return found


def find_ties(graph: Graph, tables: Mapping[str, Array]) -> dict[str, Tie]:
    """Ties of look-ups to products of a float graph. tables: as `tables_of` gives them."""
    products = [] if not tables else [node for node in graph.nodes if node.operator.accumulate is not None]
    found = {}
    for name, table in tables.items():
        for node in products:
            weights = node.inputs[1]
            if weights is not None and is_transpose(table, weights.data):
                found[name] = Tie(node.name, weights)
                break
    return found


def tie_tables(graph: Graph, ties: Mapping[str, Tie], log: PassLog) -> tuple[dict[str, str], dict[str, str]]:
    """Give tables the integers of their products, in place, where these have some.

    Returns why the nodes that multiply by scales are float, by name, and products by look-ups in blocks.
    """
    log.pass_name = PASS
    nodes = {node.name: node for node in graph.nodes}
    reasons: dict[str, str] = {}
    blocks: dict[str, str] = {}
    for name, tie in ties.items():
        node, product = nodes.get(name), nodes.get(tie.product)
        if node is None or product is None or not node.operator.looks_up_rows:
            continue
        form = product.operator.weight_blocks
        if form is not None:
            done = _tie_blocks(graph, node, product, form)
            blocks |= {name: tie.product} if done else {}
        else:
            added = _tie_integers(graph, node, product, tie)
            reasons |= added
            done = bool(added)
        if done:
            log.applied(name, f"its rows are the weights of '{tie.product}'", exact=False)
        else:
            log.refused(name, f"'{tie.product}' has no integers that its rows could be")
    return reasons, blocks


def follow_products(before: Graph, after: Graph) -> None:
    """Give tables the integers of their products, in place in `after`, where these were rounded anew."""
    earlier = {node.name: node for node in before.nodes}
    products = [n for n in after.nodes if n.operator.accumulate is not None or n.operator.weight_blocks]
    for node in after.nodes:
        in_blocks = node.operator.table_blocks is not None
        if node.name not in earlier or not (in_blocks or node.operator.looks_up_rows):
            continue
        table = operand(earlier[node.name]).data
        product = None if table is None else _product_of(table, products, earlier)
        if product is None:
            continue
        if in_blocks:
            _read_blocks(after, node, product)
        else:
            own, weights = operand(node), operand(product, 1)
            node.inputs = [_turned(after, own.name, weights, own.type.quantization), operand(node, 1)]


def looks_up_integers(node: Node) -> bool:
    """Whether a node looks up integers that are multiplied by the scales of a product afterwards."""
    return node.operator.looks_up_rows and operand(node).type.quantization == THEMSELVES


@dataclass(frozen=True)
class ScaledLookup:
    """Values behind a look-up of integers. scales: those of its rows. result: its rows times these.

    column: float32[rows, 1], the table of the scales.
    """

    scales: Value
    result: Value
    column: Array

    @staticmethod
    def of(node: Node) -> ScaledLookup | None:
        """Find those of a look-up; None where its rows are not multiplied by scales that are looked up."""
        found = [node.output]
        for value in found:
            for user in value.users():
                found += user.outputs if user.operator.dequantizes else []
                scales = operand(user, 1) if user.name == f"{node.name}{PRODUCT}" else None
                column = None if scales is None or scales.producer is None else operand(scales.producer).data
                if scales is not None and column is not None:
                    return ScaledLookup(scales, user.output, column)
        return None


def real_table(node: Node, real: Node) -> Array | None:
    """The table that a look-up of integers stands for, for a look-up in the float graph; None without scales.

    There rows may be divided by scales of their own, which they are multiplied by afterwards too.
    """
    scaled, divided, integers = ScaledLookup.of(node), ScaledLookup.of(real), operand(node).data
    if scaled is None or integers is None:
        return None
    factors = scaled.column if divided is None else scaled.column.astype(np.float64) / divided.column
    return np.asarray(integers * factors, np.float32)


def _product_of(table: Array, products: Sequence[Node], earlier: Mapping[str, Node]) -> Node | None:
    """The product whose integers a table had."""
    for product in products:
        own = earlier.get(product.name)
        weights = None if own is None else own.inputs[1]
        if weights is not None and not weights.type.is_float and is_transpose(table, weights.data):
            return product
    return None


def _tie_blocks(graph: Graph, node: Node, product: Node, form: BlockForm) -> bool:
    """Look up rows in the codes of a product, if the table is float still."""
    table, zeros = operand(node), product.operand("zero_points")
    if not table.type.is_float or (zeros is not None and zeros.type.is_float):
        return False
    change(node, BlockGather(table.type.shape[1], form.bits, form.block))
    _read_blocks(graph, node, product)
    return True


def _read_blocks(graph: Graph, node: Node, product: Node) -> None:
    """Let a look-up in blocks read the transposed constants of a product."""
    parts = [product.operand(name) for name in ("w", "scales", "zero_points")]
    codes, scales, zeros = (part if part is None else _turned(graph, part.name, part) for part in parts)
    node.inputs = [codes, operand(node, 1), scales, *([] if zeros is None else [zeros])]


def _turned(graph: Graph, name: str, weights: Value, kind: Quantization | None = None) -> Value:
    """Rows of weights [K, N] as a constant of its own."""
    assert weights.data is not None
    return constant(graph.unique_name(f"{name}.rows"), np.ascontiguousarray(weights.data.T), kind)


def _tie_integers(graph: Graph, node: Node, product: Node, tie: Tie) -> dict[str, str]:
    """Look up rows of integers and multiply by scales; returns reasons of float nodes, none if it cannot."""
    weights = product.inputs[1] if len(product.inputs) > 1 else None
    if weights is None or weights.data is None or weights.data.dtype != np.int8:
        return {}
    known = weights.type.quantization
    if known is None or any(known.zero_points):
        return {}
    # Rows that are scaled while the model runs have plain integers, whose scales a product of its own holds.
    scales = column_scales(tie.weights) if known == THEMSELVES else _spread(known.scales, weights.data)
    table = _turned(graph, weights.name, weights, THEMSELVES)
    column = new_constant(graph, f"{node.name}.scales", scales[:, None])
    if operand(node).type.is_float:
        return _split(graph, node, table, column)
    return _replaced(graph, node, table, column)


def _spread(scales: tuple[float, ...], weights: Array) -> Array:
    return np.broadcast_to(np.array(scales, np.float32), weights.shape[1:]).copy()


def _split(graph: Graph, node: Node, table: Value, column: Value) -> dict[str, str]:
    """Look up integers and their scales instead of floats."""
    indices, result = operand(node, 1), node.output
    rows = Value(graph.unique_name(f"{result.name}.levels"), result.type.quantized(THEMSELVES))
    real = Value(graph.unique_name(f"{result.name}.reals"), result.type)
    chosen = Value(
        graph.unique_name(f"{result.name}.scale"), result.type.with_shape((*result.type.shape[:-1], 1))
    )
    node.inputs = [table, indices]
    node.outputs = (rows,)
    rows.producer, rows.index = node, 0
    widened = Node(graph.unique_name(f"{node.name}.real"), Dequantize(), [rows], [real])
    lookup = Node(graph.unique_name(f"{node.name}{SCALE}"), Gather(), [column, indices], [chosen])
    product = Node(graph.unique_name(f"{node.name}{PRODUCT}"), Mul(), [real, chosen], [result])
    before = node
    for added in (widened, lookup, product):
        graph.insert_after(before, added)
        before = added
    return dict.fromkeys((lookup.name, product.name), REASON)


def _replaced(graph: Graph, node: Node, table: Value, column: Value) -> dict[str, str]:
    """Exchange the constants of a look-up that has a scale for each row already."""
    nodes, rows = {other.name: other for other in graph.nodes}, node.output
    lookup, product = nodes.get(f"{node.name}{SCALE}"), nodes.get(f"{node.name}{PRODUCT}")
    if lookup is None or product is None or not all(user.operator.dequantizes for user in rows.users()):
        return {}
    node.inputs = [table, operand(node, 1)]
    rows.type = rows.type.quantized(THEMSELVES)
    lookup.inputs = [column, operand(lookup, 1)]
    return dict.fromkeys((lookup.name, product.name), REASON)
