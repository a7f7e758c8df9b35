"""Products of which weights alone are quantized, in blocks (rule 12 of the numeric contract)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qglow.core.passes import PassLog
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.blocks import BlockGemm
from qglow.graph.rewriting import change, new_constant, operand
from qglow.numerics.blocks import pack, quantize_blocks
from qglow.quantization.weights import unfit_weights
from qglow.recipe.choices import BlockFormat

PASS = "quantize-blocks"


def unfit_for_blocks(node: Node) -> str | None:
    """Reason why the weights of a node cannot be quantized alone; None if they can."""
    reason = unfit_weights(node, "weights in blocks")
    if reason is None and not operand(node, 1).type.size:
        return "it has no weights"
    return reason


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
        operator, weights = block_operands(graph, node, chosen)
        change(node, operator, [operand(node), *weights, node.operand("bias")])
        log.applied(node.name, f"its weights are {chosen}", exact=False)
