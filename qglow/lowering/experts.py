"""Products with matrices of experts, values seen as [rows, elements of a row]."""

from __future__ import annotations

import math

from qglow.graph.graph import Node, Value
from qglow.graph.ops import experts as graph
from qglow.instructions.operation import Operation
from qglow.instructions.ops.experts import ExpertBlockGemm, ExpertGemm
from qglow.instructions.program import Buffer
from qglow.lowering.blocks import row_scales
from qglow.lowering.context import Lowering, natural
from qglow.lowering.rules import lowers


@lowers(graph.ExpertGemm)
def lower_expert_gemm(lowering: Lowering, node: Node, operator: graph.ExpertGemm) -> None:
    """Lower to one expertgemm."""
    operation = ExpertGemm(operator.experts, operator.lo, operator.hi)
    _lower(lowering, node, operation, ("w",), ("bias",))


@lowers(graph.ExpertBlockGemm)
def lower_expert_block_gemm(lowering: Lowering, node: Node, operator: graph.ExpertBlockGemm) -> None:
    """Lower to one expertblockgemm."""
    form = operator.bits, operator.block, operator.lo, operator.hi
    operation = ExpertBlockGemm(operator.experts, *form)
    _lower(lowering, node, operation, ("w", "scales"), ("zero_points", "bias"), by_rows=True)


def _lower(
    lowering: Lowering,
    node: Node,
    operation: Operation,
    before: tuple[str, ...],
    behind: tuple[str, ...],
    by_rows: bool = False,
) -> None:
    """Emit an operation; names of constants before and behind the experts of rows.

    by_rows: whether there may be scales of rows behind all of them.
    """
    x, indices = node.inputs[0], node.operand("experts")
    assert x is not None and indices is not None
    *outer, depth = x.type.shape
    rows, columns = math.prod(outer), node.output.type.shape[-1]
    source, dest = lowering.read(x, natural(x.type.shape)), lowering.write(node.output)
    chosen = lowering.read(indices, natural(indices.type.shape))
    if len(outer) != 1:
        source = lowering.view(f"{node.name}.rows", source, x.type.with_shape((rows, depth)))
        dest = lowering.view(f"{dest.name}.rows", dest, node.output.type.with_shape((rows, columns)))
        chosen = lowering.view(f"{node.name}.experts", chosen, indices.type.with_shape((rows,)))

    def constants(names: tuple[str, ...]) -> list[Buffer | None]:
        values: list[Value | None] = [node.operand(name) for name in names]
        return [None if value is None else lowering.read(value) for value in values]

    scales = [row_scales(lowering, node)] if by_rows else []
    lowering.emit(operation, dest, source, *constants(before), chosen, *constants(behind), *scales)
