"""Which nodes can run in int8, and why the others cannot."""

from __future__ import annotations

import math

import numpy as np

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Accumulate, KeepFloat, Policy, Products, ReadsIntegers, Table
from qglow.graph.ops.functions import RoundTo
from qglow.graph.ops.normalization import Affine
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool
from qglow.graph.ops.quantize import Dequantize, Quantize, Rescale
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.ops.shape import Gather, Pad
from qglow.numerics.pool import MOST_WIDE_TAPS
from qglow.quantization.choices import Choice, Choices
from qglow.quantization.options import QuantizationOptions
from qglow.quantization.products import unfit_product

_NO_WIDE_FORM: dict[type[Policy], str] = {
    Table: "a table of 65536 entries would not pay",
    Products: "both of its operands are computed",
}

FloatReasons = dict[Node, str]
"""Nodes that stay float, each with the reason."""


def data_operands(node: Node) -> tuple[int, ...]:
    """Indices of the operands that are int8 activations in the node's int8 form."""
    policy = node.operator.policy
    if isinstance(policy, Accumulate):
        return (node.operator.operands.index(policy.x),)
    if isinstance(node.operator, Gather):
        return (0,)
    names = node.operator.operands
    kept = [i for i, name in enumerate(names) if name.rstrip("?*") in node.operator.float_operands]
    return tuple(i for i in range(len(node.inputs)) if i not in kept)


def handles_reals(node: Node) -> bool:
    """Whether a node computes with float values at all: integers and indices do not count."""
    if isinstance(node.operator.policy, ReadsIntegers):
        return False
    values = [v for v in [*node.inputs, *node.outputs] if v is not None]
    return any(v.type.is_float for v in values) and bool(node.outputs)


def reads_wide(node: Node) -> bool:
    """Whether the node's integer form takes int16 operands, and may give an int16 result."""
    if isinstance(node.operator.policy, Table | Products):
        return False
    return _summed(node) <= MOST_WIDE_TAPS


def no_wide_form(node: Node) -> str:
    """Why a node for which `reads_wide` is false has none."""
    why = _NO_WIDE_FORM.get(type(node.operator.policy), "its sums could be beyond int32")
    return f"it has no int16 form: {why}"


def _summed(node: Node) -> int:
    """How many elements of its operand a mean adds up; 0 for all other nodes."""
    operator, x = node.operator, node.inputs[0] if node.inputs else None
    shape = () if x is None else x.type.shape
    if isinstance(operator, AveragePool):
        return math.prod(operator.kernel)
    if isinstance(operator, GlobalAveragePool):
        return math.prod(shape[2:])
    if isinstance(operator, ReduceMean):
        return math.prod(shape[axis] for axis in operator.axes)
    return 0


def float_reasons(graph: Graph, options: QuantizationOptions, choices: Choices | None = None) -> FloatReasons:
    """Every node that cannot or shall not run in int8, with the reason. Costs are not considered.

    `choices` are those of the options' rules.
    """
    choices = choices or Choices.of(graph, options)
    reasons: FloatReasons = {}
    for node in graph.nodes:
        if not handles_reals(node):
            continue
        reason = _reason(node, options.pattern_for(node), choices.of_node(node))
        if reason is not None:
            reasons[node] = reason
    return reasons


def chosen_half(node: Node, pattern: str | None, choice: Choice) -> str:
    """The type of 16 bits that is chosen for a node: none for one without float results, or that `pattern`
    keeps float32."""
    converts = isinstance(node.operator, Quantize | Dequantize | Rescale | RoundTo)
    if pattern is not None or converts or not any(value.type.is_float for value in node.outputs):
        return ""
    return choice.half


def _reason(node: Node, pattern: str | None, choice: Choice) -> str | None:
    policy = node.operator.policy
    if isinstance(node.operator, Quantize | Dequantize | Rescale):
        return "it converts between float and int8 in the model itself"
    if chosen_half(node, pattern, choice):
        return f"{choice.half} by {choice.kept_float}"
    if isinstance(policy, KeepFloat):
        return policy.reason
    if pattern is not None:
        return f"kept by --keep-float {pattern}"
    if choice.kept_float:
        return f"kept by {choice.kept_float}"
    if choice.wide and not reads_wide(node):
        return no_wide_form(node)
    if len(node.outputs) != 1 or not node.output.type.is_float:
        return "its result is not one float tensor"
    if isinstance(policy, Accumulate):
        return _unfit_weights(node, policy)
    if isinstance(policy, Products):
        return unfit_product(node)
    if isinstance(node.operator, Affine):
        return None if _constants(node, ("scale", "shift")) else "its scale or shift is computed by the graph"
    if isinstance(node.operator, Pad) and node.operator.value != 0.0:
        return f"it pads with {node.operator.value:g}, which int8 of its input may not hold"
    if all(v is None or v.is_constant for v in node.inputs):
        return "all its inputs are constants"
    if any(v is None or not v.type.is_float for i, v in enumerate(node.inputs) if i in data_operands(node)):
        return "an input is not float"
    return None


def _unfit_weights(node: Node, policy: Accumulate) -> str | None:
    if not _constants(node, (policy.w, policy.bias)):
        return "its weights or bias are computed by the graph"
    for name in (policy.w, policy.bias):
        value = node.operand(name)
        if value is not None and value.data is not None and not np.all(np.isfinite(value.data)):
            return f"its {name} holds NaN or infinities"
    return None


def _constants(node: Node, names: tuple[str, ...]) -> bool:
    operands: list[Value | None] = [node.operand(name) for name in names]
    return all(v is None or v.is_constant for v in operands)
