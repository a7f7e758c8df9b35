"""Import of comparisons and booleans."""

from __future__ import annotations

from qglow.graph.ops.logic import And, Compare, Not, Or
from qglow.importer.elementwise import import_binary
from qglow.importer.node import ImportNode, ImportRule


def _relation(relation: str, newest: int) -> ImportRule:
    return ImportRule(lambda node: import_binary(node, Compare(relation=relation)), newest)


def _import_not(node: ImportNode) -> None:
    node.emit(Not(), node.value(0))


RULES: dict[str, ImportRule] = {
    "And": ImportRule(lambda node: import_binary(node, And()), newest=7),
    "Equal": _relation("equal", newest=19),
    "Greater": _relation("greater", newest=13),
    "GreaterOrEqual": _relation("greater-or-equal", newest=16),
    "Less": _relation("less", newest=13),
    "LessOrEqual": _relation("less-or-equal", newest=16),
    "Not": ImportRule(_import_not, newest=1),
    "Or": ImportRule(lambda node: import_binary(node, Or()), newest=7),
    "Xor": _relation("not-equal", newest=7),
}
