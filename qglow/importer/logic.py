"""Import of comparisons and booleans."""

from __future__ import annotations

import numpy as np

from qglow.graph.ops.elementwise import Div, Mul, Sub
from qglow.graph.ops.functions import Abs, Ceil, Floor
from qglow.graph.ops.logic import And, Compare, Not, Or, Whole
from qglow.graph.ops.selection import Where
from qglow.importer.elementwise import import_binary
from qglow.importer.node import ImportNode, ImportRule


def _relation(relation: str, newest: int) -> ImportRule:
    return ImportRule(lambda node: import_binary(node, Compare(relation=relation)), newest)


def _whole(operation: str, newest: int) -> ImportRule:
    return ImportRule(lambda node: import_binary(node, Whole(operation=operation)), newest)


def _import_shift(node: ImportNode) -> None:
    direction = node.string("direction", "")
    node.require(direction in ("LEFT", "RIGHT"), f"direction '{direction}' is neither LEFT nor RIGHT")
    import_binary(node, Whole(operation=direction.lower()))


def _import_bitwise_not(node: ImportNode) -> None:
    x = node.value(0)
    every = np.bitwise_not(np.zeros((), x.type.element.dtype))
    node.emit(Whole(operation="xor"), x, node.part_constant("every", every))


def _import_mod(node: ImportNode) -> None:
    """Import Mod: a remainder with the sign of y, with fmod that of x."""
    x, y, follows_x = node.value(0), node.value(1), node.integer("fmod", 0) != 0
    if not x.type.is_float:
        node.emit(Whole(operation="remainder" if follows_x else "modulo"), x, y)
        return
    zero, infinity = (node.part_constant(n, np.array(n, np.float32)) for n in ("0", "inf"))
    quotient = node.emit(Div(), x, y, part="quotient")
    whole, beyond = node.emit(Floor(), quotient, part="down"), x
    if follows_x:
        up = node.emit(Ceil(), quotient, part="up")
        negative = node.emit(Compare(relation="less"), quotient, zero, part="negative")
        whole = node.emit(Where(), negative, up, whole, part="whole")
    else:
        below = [node.emit(Compare(relation="less"), v, zero, part="below") for v in (x, y)]
        differ = node.emit(Compare(relation="not-equal"), *below, part="differ")
        beyond = node.emit(Where(), differ, y, x, part="beyond")
    rest = node.emit(Sub(), x, node.emit(Mul(), whole, y, part="multiple"), part="rest")
    # An infinite divisor leaves everything, where a product with it would be NaN.
    size = node.emit(Abs(), y, part="size")
    endless = node.emit(Compare(relation="equal"), size, infinity, part="endless")
    node.emit(Where(), endless, beyond, rest)


def _import_not(node: ImportNode) -> None:
    node.emit(Not(), node.value(0))


RULES: dict[str, ImportRule] = {
    "And": ImportRule(lambda node: import_binary(node, And()), newest=7),
    "BitShift": ImportRule(_import_shift, newest=28),
    "BitwiseAnd": _whole("and", newest=18),
    "BitwiseNot": ImportRule(_import_bitwise_not, newest=18),
    "BitwiseOr": _whole("or", newest=18),
    "BitwiseXor": _whole("xor", newest=18),
    "Equal": _relation("equal", newest=19),
    "Greater": _relation("greater", newest=13),
    "GreaterOrEqual": _relation("greater-or-equal", newest=16),
    "Less": _relation("less", newest=13),
    "LessOrEqual": _relation("less-or-equal", newest=16),
    "Mod": ImportRule(_import_mod, newest=28),
    "Not": ImportRule(_import_not, newest=1),
    "Or": ImportRule(lambda node: import_binary(node, Or()), newest=7),
    "Xor": _relation("not-equal", newest=7),
}
