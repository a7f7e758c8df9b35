"""Knowledge of computed indices: whether they count from the beginning of an axis."""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from qglow.graph.graph import Node, Value
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.ranking import ArgMax, ArgMin, TopKIndices
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Cast
from qglow.graph.rewriting import operand, producer_of


def counts_from_start(value: Value, known: Container[str]) -> bool:
    """Whether no integer of a value is negative, as far as its nodes tell; known: names of some that are not.

    Places of the largest are such, and what is added up, multiplied and moved of such.
    """
    seen, left = {value}, [value]
    while left:
        parts = _parts(left.pop(), known)
        if parts is None:
            return False
        left += [part for part in dict.fromkeys(parts) if part not in seen]
        seen.update(parts)
    return True


def _parts(value: Value, known: Container[str]) -> list[Value] | None:
    """Values that must not be negative for one not to be; None where it may be negative whatever they are."""
    if value.data is not None:
        return None if np.any(value.data < 0) else []
    if value.name in known or producer_of(value, ArgMax, ArgMin, TopKIndices) is not None:
        return []
    node, chosen = value.producer, producer_of(value, Where)
    if node is None:
        return None
    if chosen is not None:
        return [] if _turns_negative_ones(chosen) else [operand(node, 1), operand(node, 2)]
    indices = node.operator.elements_from(len(node.inputs))
    if producer_of(value, Cast, Slice) is not None:
        indices = (0,)
    elif producer_of(value, Add, Mul) is not None:
        indices = (0, 1)
    return [operand(node, index) for index in indices] or None


def _turns_negative_ones(node: Node) -> bool:
    """Whether a choice adds an extent to those indices that are negative, and leaves the others."""
    condition, turned = producer_of(operand(node, 0), Compare), producer_of(operand(node, 1), Add)
    if condition is None or turned is None or condition.operator != Compare(relation="less"):
        return False
    index, zero = operand(condition, 0), operand(condition, 1).data
    same = index is node.inputs[2] and index in turned.inputs
    return same and zero is not None and not np.any(zero)
