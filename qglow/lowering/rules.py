"""The table of lowering rules, keyed by operator class; one family file fills its part."""

from __future__ import annotations

from collections.abc import Callable

from qglow.graph.graph import Node
from qglow.graph.operator import Operator
from qglow.lowering.context import Lowering

Rule = Callable[[Lowering, Node], None]
RULES: dict[type[Operator], Rule] = {}


def lowers(*operators: type[Operator]) -> Callable[[Rule], Rule]:
    """Decorator: the function emits the instructions of these operators."""

    def register(rule: Rule) -> Rule:
        for operator in operators:
            if operator in RULES:
                raise ValueError(f"{operator.name} has two lowering rules")
            RULES[operator] = rule
        return rule

    return register
