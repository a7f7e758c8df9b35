"""Import of circular and hyperbolic functions as what defines them: https://onnx.ai/onnx/operators/

Acos, Acosh, Asin, Asinh, Atanh, Cosh, Sinh, Tan
"""

from __future__ import annotations

import numpy as np

from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Div, Mul, Sub
from qglow.graph.ops.functions import Abs, Atan, Cos, Elu, Exp, Log, Neg, Sign, Sin, Sqrt
from qglow.importer.node import ImportNode, ImportRule


def import_tan(node: ImportNode) -> None:
    """Import Tan: sine by cosine."""
    x = node.value(0)
    node.emit(Div(), node.emit(Sin(), x, part="sine"), node.emit(Cos(), x, part="cosine"))


def import_asin(node: ImportNode) -> None:
    """Import Asin: twice the angle whose tangent is x / (1 + sqrt(1 - x^2))."""
    x, one = node.value(0), _number(node, 1.0)
    root = node.emit(Sqrt(), node.emit(Mul(), *_sides(node, x), part="product"), part="root")
    half = node.emit(Div(), x, node.emit(Add(), root, one, part="below"), part="tangent")
    node.emit(Mul(), node.emit(Atan(), half, part="half"), _number(node, 2.0))


def import_acos(node: ImportNode) -> None:
    """Import Acos: twice the angle whose tangent is sqrt((1 - x) / (1 + x))."""
    root = node.emit(Sqrt(), node.emit(Div(), *_sides(node, node.value(0)), part="quotient"), part="root")
    node.emit(Mul(), node.emit(Atan(), root, part="half"), _number(node, 2.0))


def import_sinh(node: ImportNode) -> None:
    """Import Sinh: of m = e^-|x| - 1 it is -(m + m / (m + 1)) / 2, which keeps its digits around 0."""
    x = node.value(0)
    back = node.emit(Neg(), node.emit(Abs(), x, part="size"), part="back")
    less = node.emit(Elu(alpha=1.0), back, part="less")
    share = node.emit(Div(), less, node.emit(Add(), less, _number(node, 1.0), part="power"), part="share")
    signed = node.emit(Mul(), node.emit(Sign(), x, part="sign"), _number(node, -0.5), part="signed")
    node.emit(Mul(), node.emit(Add(), less, share, part="sum"), signed)


def import_cosh(node: ImportNode) -> None:
    """Import Cosh: (e^x + e^-x) / 2."""
    x = node.value(0)
    powers = [
        node.emit(Exp(), each, part=part)
        for each, part in ((x, "forth"), (node.emit(Neg(), x, part="negative"), "back"))
    ]
    node.emit(Mul(), node.emit(Add(), *powers, part="sum"), _number(node, 0.5))


def import_asinh(node: ImportNode) -> None:
    """Import Asinh: ln(|x| + sqrt(x^2 + 1)) with the sign of x."""
    x = node.value(0)
    square = node.emit(Mul(), x, x, part="square")
    root = node.emit(Sqrt(), node.emit(Add(), square, _number(node, 1.0), part="more"), part="root")
    total = node.emit(Add(), node.emit(Abs(), x, part="size"), root, part="sum")
    node.emit(Mul(), node.emit(Log(), total, part="log"), node.emit(Sign(), x, part="sign"))


def import_acosh(node: ImportNode) -> None:
    """Import Acosh: ln(x + sqrt(x^2 - 1))."""
    x = node.value(0)
    square = node.emit(Mul(), x, x, part="square")
    root = node.emit(Sqrt(), node.emit(Sub(), square, _number(node, 1.0), part="less"), part="root")
    node.emit(Log(), node.emit(Add(), x, root, part="sum"))


def import_atanh(node: ImportNode) -> None:
    """Import Atanh: ln((1 + x) / (1 - x)) / 2."""
    less, more = _sides(node, node.value(0))
    log = node.emit(Log(), node.emit(Div(), more, less, part="quotient"), part="log")
    node.emit(Mul(), log, _number(node, 0.5))


def _sides(node: ImportNode, x: Value) -> tuple[Value, Value]:
    """1 - x and 1 + x."""
    one = _number(node, 1.0)
    return node.emit(Sub(), one, x, part="one_less"), node.emit(Add(), x, one, part="one_more")


def _number(node: ImportNode, value: float) -> Value:
    return node.part_constant("number", np.array(value, np.float32))


RULES: dict[str, ImportRule] = {
    "Acos": ImportRule(import_acos, newest=22),
    "Acosh": ImportRule(import_acosh, newest=22),
    "Asin": ImportRule(import_asin, newest=22),
    "Asinh": ImportRule(import_asinh, newest=22),
    "Atanh": ImportRule(import_atanh, newest=22),
    "Cosh": ImportRule(import_cosh, newest=22),
    "Sinh": ImportRule(import_sinh, newest=22),
    "Tan": ImportRule(import_tan, newest=22),
}
