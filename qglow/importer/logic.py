"""Import of comparisons and booleans."""

from __future__ import annotations

from qglow.graph.ops.logic import And, Compare, Not, Or
from qglow.importer.elementwise import import_binary
from qglow.importer.functions import import_unary
from qglow.importer.node import Rule


def _relation(relation: str, newest: int) -> Rule:
    return Rule(lambda node: import_binary(node, Compare(relation=relation)), newest)


RULES: dict[str, Rule] = {
    "And": Rule(lambda node: import_binary(node, And()), newest=7),
    "Equal": _relation("equal", newest=19),
    "Greater": _relation("greater", newest=13),
    "GreaterOrEqual": _relation("greater-or-equal", newest=16),
    "Less": _relation("less", newest=13),
    "LessOrEqual": _relation("less-or-equal", newest=16),
    "Not": Rule(lambda node: import_unary(node, Not()), newest=1),
    "Or": Rule(lambda node: import_binary(node, Or()), newest=7),
    "Xor": _relation("not-equal", newest=7),
}
