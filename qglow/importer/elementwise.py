"""Import of elementwise operators: arithmetic with broadcasting, clamps, sigmoid and tanh."""

from __future__ import annotations

import math

from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Clip, Mul, Relu, Sigmoid, Sub, Tanh
from qglow.importer.node import ImportNode, Rule


def _unary(node: ImportNode, operator: Operator) -> None:
    node.emit(operator, node.value(0))


def _binary(node: ImportNode, operator: Operator) -> None:
    node.emit(operator, node.value(0), node.value(1))


def import_clip(node: ImportNode) -> None:
    """Clip; its bounds are attributes before opset 11 and constant inputs from then on."""
    if node.opset < 11:
        low, high = node.number("min", -math.inf), node.number("max", math.inf)
    else:
        low, high = node.scalar(1, "the minimum", -math.inf), node.scalar(2, "the maximum", math.inf)
    node.emit(Clip(lo=low, hi=high), node.value(0))


RULES: dict[str, Rule] = {
    "Add": Rule(lambda node: _binary(node, Add()), newest=14),
    "Clip": Rule(import_clip, newest=13),
    "Mul": Rule(lambda node: _binary(node, Mul()), newest=14),
    "Relu": Rule(lambda node: _unary(node, Relu()), newest=14),
    "Sigmoid": Rule(lambda node: _unary(node, Sigmoid()), newest=13),
    "Sub": Rule(lambda node: _binary(node, Sub()), newest=14),
    "Tanh": Rule(lambda node: _unary(node, Tanh()), newest=13),
}
