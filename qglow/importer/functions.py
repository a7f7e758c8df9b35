"""Import of functions of one variable. https://onnx.ai/onnx/operators/ under the same names"""

from __future__ import annotations

from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Relu, Sigmoid, Tanh
from qglow.graph.ops.functions import (
    Abs,
    Elu,
    Erf,
    Exp,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Log,
    Neg,
    Reciprocal,
    Softplus,
    Sqrt,
    Swish,
)
from qglow.importer.node import ImportNode, Rule


def _plain(operator: Operator, newest: int) -> Rule:
    return Rule(lambda node: import_unary(node, operator), newest)


def import_unary(node: ImportNode, operator: Operator) -> None:
    """An operator of one input."""
    node.emit(operator, node.value(0))


RULES: dict[str, Rule] = {
    "Abs": _plain(Abs(), newest=13),
    "Elu": Rule(lambda node: import_unary(node, Elu(alpha=node.number("alpha", 1.0))), newest=22),
    "Erf": _plain(Erf(), newest=13),
    "Exp": _plain(Exp(), newest=13),
    "Gelu": Rule(
        lambda node: import_unary(node, Gelu(approximate=node.string("approximate", "none"))), newest=20
    ),
    "HardSigmoid": Rule(
        lambda node: import_unary(
            node, HardSigmoid(alpha=node.number("alpha", 0.2), beta=node.number("beta", 0.5))
        ),
        newest=22,
    ),
    "HardSwish": _plain(HardSwish(), newest=22),
    "LeakyRelu": Rule(
        lambda node: import_unary(node, LeakyRelu(alpha=node.number("alpha", 0.01))), newest=16
    ),
    "Log": _plain(Log(), newest=13),
    "Neg": _plain(Neg(), newest=13),
    "Reciprocal": _plain(Reciprocal(), newest=13),
    "Relu": _plain(Relu(), newest=14),
    "Sigmoid": _plain(Sigmoid(), newest=13),
    "Softplus": _plain(Softplus(), newest=22),
    "Sqrt": _plain(Sqrt(), newest=13),
    "Swish": Rule(lambda node: import_unary(node, Swish(alpha=node.number("alpha", 1.0))), newest=24),
    "Tanh": _plain(Tanh(), newest=13),
}
