"""RowScales to rowscales: the value seen as [rows, elements of a row]."""

from __future__ import annotations

import math

from qglow.graph.graph import Node
from qglow.graph.ops import rows as graph
from qglow.instructions.ops.rows import RowScales
from qglow.lowering.context import Lowering, natural
from qglow.lowering.rules import lowers


@lowers(graph.RowScales)
def lower_row_scales(lowering: Lowering, node: Node, operator: graph.RowScales) -> None:
    """Lower to one rowscales."""
    x = node.inputs[0]
    assert x is not None
    *outer, length = x.type.shape
    rows = math.prod(outer)
    source = lowering.read(x, natural(x.type.shape))
    dest = lowering.write(node.output)
    seen = lowering.view(f"{node.name}.rows", source, x.type.with_shape((rows, length)))
    scales = lowering.view(f"{dest.name}.rows", dest, node.output.type.with_shape((rows, 1)))
    lowering.emit(RowScales(), scales, seen)
