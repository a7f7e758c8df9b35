"""Functions of one variable: a table where both sides are int8, else one instruction."""

from __future__ import annotations

from qglow.graph.graph import Node
from qglow.graph.operator import OPERATORS
from qglow.graph.ops.functions import Function
from qglow.instructions.ops.functions import FUNCTIONS
from qglow.lowering.context import Lowering
from qglow.lowering.quantize import lower_table
from qglow.lowering.rules import lowers

_OPERATORS = [o for o in OPERATORS.values() if issubclass(o, Function) and o.opcode in FUNCTIONS]


@lowers(*_OPERATORS)
def lower_function(lowering: Lowering, node: Node, operator: Function) -> None:
    """Lower to a float function of each element, or its table where both sides are int8."""
    x, result = node.inputs[0], node.output.type
    assert x is not None
    if x.type.is_quantized and result.is_quantized:
        lower_table(lowering, node, operator)
        return
    source, order = lowering.read(x), lowering.order(x)
    operation = FUNCTIONS[operator.opcode](*operator.settings())
    lowering.emit(operation, lowering.write(node.output, order), source)
