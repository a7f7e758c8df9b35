"""Products of which weights alone are quantized, in blocks (rule 12 of the numeric contract)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.blocks import BlockGather, BlockGemm
from qglow.graph.rewriting import change, new_constant, operand
from qglow.numerics.blocks import pack, quantize_blocks
from qglow.quantization.weights import unfit_weights
from qglow.recipe.choices import BlockFormat

PASS = "quantize-blocks"
ROWS_AT_ONCE = 4096
"""Rows of a table whose scales are tried at once, which takes some times their memory."""


def unfit_for_blocks(node: Node, stated: bool = False) -> str | None:
    """Reason why the weights of a node cannot be quantized alone; None if they can.

    stated: whether a rule asks for it, without which tables stay float.
    """
    if node.operator.looks_up_rows:
        return _unfit_table(node, stated)
    reason = unfit_weights(node, "weights in blocks")
    if reason is None and not operand(node, 1).type.size:
        return "it has no weights"
    return reason


def _unfit_table(node: Node, stated: bool) -> str | None:
    table = operand(node)
    if table.data is None or not table.type.is_float or len(table.type.shape) != 2 or not table.type.size:
        return "it looks up no constant float matrix"
    if not np.all(np.isfinite(table.data)):
        return "its table holds NaN or infinities"
    return None if stated else "a table gets blocks by a rule with `weights` that fits it"


def block_operands(graph: Graph, node: Node, chosen: BlockFormat) -> tuple[BlockGemm, list[Value | None]]:
    """The operator of a float product with weights in blocks, and codes, scales and zero points for it."""
    weights, (lo, hi) = operand(node, 1), node.operator.bounds
    data = np.asarray(weights.data, np.float32)
    codes, scales, zeros = quantize_blocks(data, chosen.bits, chosen.block, chosen.symmetric)
    name = weights.name
    points = None if zeros is None else new_constant(graph, f"{name}.zero_points", zeros)
    packed = new_constant(graph, f"{name}.codes", pack(codes, chosen.bits))
    factors = new_constant(graph, f"{name}.scales", scales)
    return BlockGemm(bits=chosen.bits, block=chosen.block, lo=lo, hi=hi), [packed, factors, points]


def quantize_in_blocks(graph: Graph, formats: Mapping[Node, BlockFormat], log: PassLog) -> None:
    """Replace float products, for which `unfit_for_blocks` has no reason, in place; names are kept."""
    log.pass_name = PASS
    for node, chosen in formats.items():
        if node.operator.looks_up_rows:
            _quantize_table(graph, node, chosen)
        else:
            operator, weights = block_operands(graph, node, chosen)
            change(node, operator, [operand(node), *weights, node.operand("bias")])
        log.applied(node.name, f"its weights are {chosen}", exact=False)


def _quantize_table(graph: Graph, node: Node, chosen: BlockFormat) -> None:
    """Replace a look-up of rows of a float table, in place."""
    table, indices = operand(node), operand(node, 1)
    data = np.asarray(table.data, np.float32)
    found: list[tuple[Array, Array, Array | None]] = []
    for start in range(0, len(data), ROWS_AT_ONCE):
        rows = np.ascontiguousarray(data[start : start + ROWS_AT_ONCE].T)
        codes, scales, zeros = quantize_blocks(rows, chosen.bits, chosen.block, chosen.symmetric)
        found.append((pack(codes, chosen.bits).T, scales.T, None if zeros is None else zeros.T))
    name, points = table.name, None
    if not chosen.symmetric:
        every = np.concatenate([zeros for _, _, zeros in found if zeros is not None])
        points = new_constant(graph, f"{name}.zero_points", every)
    packed = new_constant(graph, f"{name}.codes", np.concatenate([codes for codes, _, _ in found]))
    factors = new_constant(graph, f"{name}.scales", np.concatenate([scales for _, scales, _ in found]))
    operator = BlockGather(data.shape[1], chosen.bits, chosen.block)
    change(node, operator, [packed, indices, factors, points])
