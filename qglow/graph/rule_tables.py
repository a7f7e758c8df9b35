"""Tables of rules by operator class, which decorators fill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from qglow.graph.operator import Operator

Rule = TypeVar("Rule")


def fills(
    table: dict[type[Operator], Any], operators: tuple[type[Operator], ...], called: str
) -> Callable[[Rule], Rule]:
    """Decorator: enter the function into a table as the rule of these operators.

    called: plural noun for such rules in error messages. Raises ValueError if an operator has a rule
    already.
    """

    def register(rule: Rule) -> Rule:
        for operator in operators:
            if operator in table:
                raise ValueError(f"{operator.name} has two {called}")
            table[operator] = rule
        return rule

    return register
