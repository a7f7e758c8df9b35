"""Multiplications with weights, by which models compare what their parts cost."""

from __future__ import annotations

import math

from qglow.graph.graph import Node
from qglow.graph.operator import Accumulate, Recur


def node_multiply_adds(node: Node) -> float:
    """Multiplications with weights in a run of one node; 0 for a node without weights."""
    policy = node.operator.policy
    if isinstance(policy, Recur):
        weights = node.operand(policy.w)
        steps = node.output.type.shape[0] - 1
        return 0.0 if weights is None else float(steps * node.output.type.shape[1] * weights.type.size)
    weights = node.operand(policy.w) if isinstance(policy, Accumulate) else None
    if weights is None:
        return 0.0
    shape = weights.type.shape
    a_result = math.prod(shape[1:]) if len(shape) == 4 else shape[0]
    return float(node.output.type.size * a_result)
