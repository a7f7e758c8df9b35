"""Opaque nodes as calls of the host."""

from __future__ import annotations

from qglow.graph.graph import Node
from qglow.graph.ops.opaque import Opaque
from qglow.instructions.ops.hosted import HostCall
from qglow.lowering.context import Lowering, natural
from qglow.lowering.rules import lowers


@lowers(Opaque)
def lower_opaque(lowering: Lowering, node: Node, operator: Opaque) -> None:
    """Lower to one hostcall on dense buffers in natural order."""
    given = [v for v in node.inputs if v is not None]
    arguments = [lowering.read(value, natural(value.type.shape)) for value in given]
    results = [lowering.write(value) for value in node.outputs]
    call = HostCall(operator.kinds, operator.model, operator.arguments, operator.results)
    lowering.emit(call, *results, *arguments)
