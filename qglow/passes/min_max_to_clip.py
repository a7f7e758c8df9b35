"""Max and Min with one constant are a Clip, which fuses with what computes its operand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node
from qglow.graph.ops.elementwise import Clip
from qglow.graph.ops.selection import Max, Min
from qglow.graph.rewriting import Outcome, RewritePass, change, operand


@dataclass(frozen=True)
class MinMaxToClip(RewritePass):
    """Turn Max and Min into a Clip, if the constant is one value that leaves the other operand's shape."""

    name: ClassVar[str] = "min-max-to-clip"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Turn one Max or Min into a Clip."""
        operator = node.operator
        if not isinstance(operator, Max | Min) or not node.output.type.is_float:
            return None
        lhs, rhs = operand(node, 0), operand(node, 1)
        if lhs.is_constant == rhs.is_constant:
            return None
        x, limit = (rhs, lhs) if lhs.is_constant else (lhs, rhs)
        bound = _one_value(np.asarray(limit.data))
        if bound is None:
            return Refused(f"%{limit.name} is not one number")
        if x.type != node.output.type:
            return Refused(f"%{x.name} is broadcast")
        change(node, Clip(lo=bound) if isinstance(operator, Max) else Clip(hi=bound), [x])
        return f"{operator.name} with {bound:g} becomes Clip"


def _one_value(data: Array) -> float | None:
    """The value of all elements; None if they differ or are NaN."""
    if data.size == 0 or not np.all(data == data.reshape(-1)[0]):
        return None
    value = float(data.reshape(-1)[0])
    return None if math.isnan(value) else value
