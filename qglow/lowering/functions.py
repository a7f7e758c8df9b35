"""Functions of one variable: a table where both sides are int8, else one instruction."""

from __future__ import annotations

from qglow.graph.graph import Node
from qglow.graph.operator import Operator
from qglow.graph.ops import elementwise
from qglow.graph.ops import functions as graph
from qglow.instructions.operation import Operation
from qglow.instructions.ops import activation
from qglow.instructions.ops import functions as instructions
from qglow.instructions.ops.quantize import Lookup
from qglow.lowering.context import Lowering
from qglow.lowering.rules import lowers
from qglow.numerics.tables import build_table

_INSTRUCTIONS: dict[type[Operator], type[Operation]] = {
    elementwise.Sigmoid: activation.Sigmoid,
    elementwise.Tanh: activation.Tanh,
    graph.Neg: instructions.Negative,
    graph.Abs: instructions.Absolute,
    graph.Sqrt: instructions.Sqrt,
    graph.Reciprocal: instructions.Reciprocal,
    graph.Exp: instructions.Exp,
    graph.Log: instructions.Log,
    graph.Erf: instructions.Erf,
    graph.Softplus: instructions.Softplus,
    graph.Elu: instructions.Elu,
    graph.LeakyRelu: instructions.LeakyRelu,
    graph.HardSigmoid: instructions.HardSigmoid,
    graph.HardSwish: instructions.HardSwish,
    graph.Swish: instructions.Swish,
    graph.Gelu: instructions.Gelu,
    graph.PowerOf: instructions.PowerOf,
    graph.RoundTo: instructions.RoundTo,
}
"""The instruction of each function takes the operator's fields."""


@lowers(*_INSTRUCTIONS)
def lower_function(lowering: Lowering, node: Node) -> None:
    """A float function of each element, or its table where both sides are int8."""
    x, operator, result = node.inputs[0], node.operator, node.output.type
    assert x is not None
    source, order = lowering.read(x), lowering.order(x)
    dest = lowering.write(node.output, order)
    if x.type.quantization is None or result.quantization is None:
        settings = operator.settings() if isinstance(operator, graph.Function) else ()
        lowering.emit(_INSTRUCTIONS[type(operator)](*settings), dest, source)
        return
    table = build_table(operator.reference64, x.type.quantization, result.quantization)
    lowering.emit(Lookup(), dest, source, lowering.constant(f"{node.name}.table", table))
