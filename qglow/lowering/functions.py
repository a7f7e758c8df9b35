"""Functions of one variable: a table where both sides are int8, else one instruction."""

from __future__ import annotations

import numpy as np

from qglow.graph.graph import Node
from qglow.graph.operator import OPERATORS
from qglow.graph.ops.functions import Function
from qglow.instructions.ops.elementwise import ElementSub
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
    if x.type.is_plain_integer:
        _negate(lowering, node)
        return
    source, order = lowering.read(x), lowering.order(x)
    operation = FUNCTIONS[operator.opcode](*operator.settings())
    lowering.emit(operation, lowering.write(node.output, order), source)


def _negate(lowering: Lowering, node: Node) -> None:
    """Lower the one function that integers have: 0 less x."""
    x = node.inputs[0]
    assert x is not None
    source, order = lowering.read(x), lowering.order(x)
    zero = lowering.constant(f"{node.name}.zero", np.zeros((1,) * len(order), x.type.element.dtype))
    lowering.emit(ElementSub(), lowering.write(node.output, order), zero, source)
