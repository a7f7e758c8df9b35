"""Products of which weights alone are quantized, in blocks (rule 12 of the numeric contract)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.blocks import BlockGather, BlockGemm
from qglow.graph.rewriting import change, new_constant, operand
from qglow.graph.traits import BlockForm
from qglow.numerics.block_codes import LARGEST_FLOAT16
from qglow.numerics.block_rounding import quantize_blocks
from qglow.numerics.blocks import pack
from qglow.quantization.weights import unfit_weights
from qglow.recipe.choices import BlockFormat

PASS = "quantize-blocks"
ROWS_AT_ONCE = 4096
"""Rows of a table whose scales are tried at once, which takes some times their memory."""


Blocks = tuple[Array, Array, Array | None]
"""Codes as `pack` has them, scales, and zero points, packed too."""


class KnownBlocks:
    """Weights in blocks of a model that was quantized in other sizes.

    Scales of blocks take long to find, and equal weights have equal ones.
    """

    def __init__(self, quantized: Graph, real: Graph) -> None:
        """`real` is the float graph that `quantized` stands for, node by node."""
        self._nodes = {node.name: node for node in quantized.nodes}
        self._real = {node.name: node for node in real.nodes}

    def find(self, node: Node, wanted: Operator, chosen: BlockFormat) -> Blocks | None:
        """Blocks of a node of this name and these weights that became `wanted`; None if there are none."""
        twin, first = self._nodes.get(node.name), self._real.get(node.name)
        if twin is None or first is None or twin.operator != wanted:
            return None
        place = 0 if node.operator.looks_up_rows else 1
        packed, scales, zeros = operand(twin, place).data, twin.operand("scales"), twin.operand("zero_points")
        own, other = operand(node, place).data, operand(first, place).data
        if own is None or other is None or (zeros is None) != chosen.symmetric:
            return None
        if own.shape != other.shape or own.dtype != other.dtype or own.tobytes() != other.tobytes():
            return None
        if packed is None or scales is None or scales.data is None or scales.type.is_half != chosen.float16:
            return None
        return packed, scales.data, None if zeros is None else zeros.data


class BlockMaker:
    """Integers of weights in blocks: those of the model in other sizes, or made here."""

    def __init__(self, known: KnownBlocks | None = None, refined: bool = False) -> None:
        """known: those of the model in other sizes. refined: whether scales are fitted once more (HQQ)."""
        self._known = known
        self._refined = refined

    def make(self, node: Node, wanted: Operator, chosen: BlockFormat) -> Blocks:
        """Blocks of a product or a look-up of rows that becomes `wanted`."""
        found = None if self._known is None else self._known.find(node, wanted, chosen)
        if found is not None:
            return found
        if node.operator.looks_up_rows:
            return self._of_rows(np.asarray(operand(node).data, np.float32), chosen)
        return self._of_columns(np.asarray(operand(node, 1).data, np.float32), chosen)

    def _of_columns(self, weights: Array, chosen: BlockFormat) -> Blocks:
        codes, scales, zeros = quantize_blocks(
            weights, chosen.bits, chosen.block, chosen.symmetric, chosen.float16, self._refined
        )
        return pack(codes, chosen.bits), scales, None if zeros is None else pack(zeros, chosen.bits)

    def _of_rows(self, table: Array, chosen: BlockFormat) -> Blocks:
        """Blocks along the rows of a table, some of its rows at a time."""
        found = [
            self._of_columns(np.ascontiguousarray(table[start : start + ROWS_AT_ONCE].T), chosen)
            for start in range(0, len(table), ROWS_AT_ONCE)
        ]
        codes = np.concatenate([packed.T for packed, _, _ in found])
        scales = np.concatenate([factors.T for _, factors, _ in found])
        points = [zeros.T for _, _, zeros in found if zeros is not None]
        return codes, scales, np.concatenate(points) if points else None


def unfit_for_blocks(node: Node, chosen: BlockFormat | None = None, stated: bool = False) -> str | None:
    """Reason why the weights of a node cannot be quantized alone, in the chosen format; None if they can.

    stated: whether a rule asks for it, without which tables stay float.
    """
    table = node.operator.looks_up_rows
    reason = _unfit_table(node, stated) if table else _unfit_product(node)
    if reason is not None:
        return reason
    weights = operand(node, 0 if table else 1)
    if not weights.type.size:
        return "it has no weights"
    largest = float(np.max(np.abs(np.asarray(weights.data, np.float32))))
    if chosen is not None and chosen.float16 and largest > LARGEST_FLOAT16:
        return f"its weights reach {largest:g}, and scales of float16 {LARGEST_FLOAT16:g}"
    return None


def has_matrices(node: Node) -> bool:
    """Whether each row of a float product has one of several matrices, whose weights can get blocks."""
    return node.operator.with_weight_blocks(BlockForm(BlockFormat().bits, BlockFormat().block)) is not None


def _unfit_product(node: Node) -> str | None:
    if not has_matrices(node):
        return unfit_weights(node, "weights in blocks")
    weights = operand(node, 1)
    if weights.data is None:
        return "its weights are computed by the graph"
    return None if np.all(np.isfinite(weights.data)) else "its w holds NaN or infinities"


def _unfit_table(node: Node, stated: bool) -> str | None:
    table = operand(node)
    if table.data is None or not table.type.is_float or len(table.type.shape) != 2 or not table.type.size:
        return "it looks up no constant float matrix"
    if not np.all(np.isfinite(table.data)):
        return "its table holds NaN or infinities"
    return None if stated else "a table gets blocks by a rule with `weights` that fits it"


def block_operands(
    graph: Graph, node: Node, chosen: BlockFormat, maker: BlockMaker
) -> tuple[Operator, list[Value | None]]:
    """The operator of a float product with weights in blocks, and its operands behind x up to zero points."""
    (lo, hi), several = node.operator.bounds, has_matrices(node)
    made: Operator = BlockGemm(bits=chosen.bits, block=chosen.block, lo=lo, hi=hi)
    if several:
        made = node.operator.with_weight_blocks(BlockForm(chosen.bits, chosen.block))
    codes, scales, zeros = _constants(graph, operand(node, 1), maker.make(node, made, chosen))
    return made, [codes, scales, *([node.operand("experts")] if several else []), zeros]


def _constants(graph: Graph, replaced: Value, blocks: Blocks) -> list[Value | None]:
    """Codes, scales and zero points as values, named after the weights that they replace."""
    codes, scales, zeros = blocks
    name = replaced.name
    points = None if zeros is None else new_constant(graph, f"{name}.zero_points", zeros)
    packed = new_constant(graph, f"{name}.codes", codes)
    return [packed, new_constant(graph, f"{name}.scales", scales), points]


def quantize_in_blocks(
    graph: Graph, formats: Mapping[Node, BlockFormat], log: PassLog, maker: BlockMaker | None = None
) -> None:
    """Replace float products, for which `unfit_for_blocks` has no reason, in place; names are kept."""
    log.pass_name, maker = PASS, maker or BlockMaker()
    for node, chosen in formats.items():
        if node.operator.looks_up_rows:
            _quantize_table(graph, node, chosen, maker)
        else:
            operator, weights = block_operands(graph, node, chosen, maker)
            change(node, operator, [operand(node), *weights, node.operand("bias")])
        log.applied(node.name, f"its weights are {chosen}", exact=False)


def _quantize_table(graph: Graph, node: Node, chosen: BlockFormat, maker: BlockMaker) -> None:
    """Replace a look-up of rows of a float table, in place."""
    table, indices = operand(node), operand(node, 1)
    made = BlockGather(table.type.shape[1], chosen.bits, chosen.block)
    codes, *parameters = _constants(graph, table, maker.make(node, made, chosen))
    change(node, made, [codes, indices, *parameters])
