"""The table of lowering rules, keyed by operator class; each family file fills its part with `lowers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from qglow.graph.graph import Node
from qglow.graph.operator import Operator
from qglow.graph.rule_tables import fills
from qglow.lowering.context import Lowering

Op = TypeVar("Op", bound=Operator)
LoweringRule = Callable[[Lowering, Node, Op], None]
"""Emits the instructions of a node, whose operator is the last argument."""

RULES: dict[type[Operator], LoweringRule[Any]] = {}


def lowers(*operators: type[Op]) -> Callable[[LoweringRule[Op]], LoweringRule[Op]]:
    """Decorator: the function emits the instructions of these operators.

    Raises ValueError if one of them has a rule already.
    """
    return fills(RULES, operators, "lowering rules")
