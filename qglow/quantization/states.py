"""Weights of nodes that multiply their own states, such as those of recurrent layers."""

from __future__ import annotations

import numpy as np

from qglow.core.errors import InternalError
from qglow.core.types import Quantization
from qglow.graph.graph import Graph, Node, constant
from qglow.graph.operator import Recur
from qglow.numerics.recurrence import LARGEST_DEPTH
from qglow.numerics.weights import quantize_weights, weight_scales

COLUMNS = 1
"""Axis of the weights along which each index has a scale."""


def unfit_states(node: Node, policy: Recur) -> str | None:
    """Reason why the products of a node's states cannot be int8; None if they can."""
    w = node.operand(policy.w)
    if w is None or w.data is None:
        return "its weights are computed by the graph"
    if not np.all(np.isfinite(w.data)):
        return f"its {policy.w} holds NaN or infinities"
    if w.data.shape[0] > LARGEST_DEPTH:
        return f"sums of {w.data.shape[0]} products could be beyond int32"
    return None


def set_state_weights(graph: Graph, node: Node, policy: Recur, per_tensor: bool) -> None:
    """Give a node with int8 states its int8 weights, by rule 4 of the numeric contract."""
    state, w = node.operand(policy.state), node.operand(policy.w)
    if state is None or state.type.quantization is None or w is None or w.data is None:
        raise InternalError(f"{node} has no int8 states")
    scales = weight_scales(w.data, None, state.type.quantization.scale, COLUMNS, per_tensor)
    if per_tensor:
        quantization = Quantization.per_tensor(float(scales[0]), 0)
    else:
        quantization = Quantization.per_channel(scales, COLUMNS)
    integers = quantize_weights(w.data, scales, COLUMNS)
    made = constant(graph.unique_name(f"{w.name}_int8"), integers, quantization)
    node.inputs = [made if value is w else value for value in node.inputs]
