"""Parameters of activations and integers of weights that a quantized model brings itself."""

from __future__ import annotations

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array, Quantization
from qglow.graph.graph import Graph, Node, Value, nested
from qglow.graph.operator import Accumulate, Products, SameAs, Unify
from qglow.graph.rewriting import dequantized_constant
from qglow.numerics.quantize import INT8_MAX, INT8_MIN, along, parameters
from qglow.numerics.requantize import accumulator_margin, multiplier
from qglow.numerics.weights import bias_scales
from qglow.numerics.wide import worst_sum
from qglow.quantization.assign import Assignment
from qglow.quantization.placement import data_operands, no_wide_form, reads_wide
from qglow.quantization.weights import FloatWeights, GivenIntegers, integers, output_axis

Given = dict[str, GivenIntegers | None]
"""Integers of weights by node name; None for weights that have to be rounded again."""


def carries_parameters(graph: Graph) -> bool:
    """Whether the model quantizes an activation itself, perhaps in a body of control flow."""
    return any(
        node.operator.is_border and dequantized_constant(node.output) is None
        for _, part in nested(graph)
        for node in part.nodes
        if node.outputs
    )


def given_parameters(graph: Graph) -> Assignment:
    """Return parameters of the float values that the model gets by dequantizing, or only quantizes.

    Data movement passes them on in both directions: quantizing before it is the same as after it. A
    constant has those that it was dequantized with.
    """
    found: Assignment = {}
    for node in reversed(graph.nodes):
        for value in node.outputs:
            _from_users(graph, value, found)
    for value in graph.inputs:
        _from_users(graph, value, found)
    for node in graph.nodes:
        policy = node.operator.policy
        if node.operator.dequantizes:
            source = node.inputs[0]
            if source is not None and source.type.quantization is not None:
                found[node.output] = source.type.quantization
        elif isinstance(policy, SameAs) and len(node.outputs) == 1:
            x = node.inputs[policy.operand]
            if x is not None and x in found:
                found[node.output] = found[x]
    return found


def _from_users(graph: Graph, value: Value, found: Assignment) -> None:
    """Assign the quantization that all users of a float value want, if they agree and none wants float."""
    if not value.type.is_float or value.is_constant or graph.is_output(value):
        return
    wanted = {_wanted(value, user, found) for user in value.users()}
    if len(wanted) == 1 and None not in wanted:
        found[value] = next(q for q in wanted if q is not None)


def _wanted(value: Value, user: Node, found: Assignment) -> Quantization | None:
    policy = user.operator.policy
    if user.operator.quantizes:
        return user.output.type.quantization
    if isinstance(policy, SameAs) and user.inputs[policy.operand] is value:
        return found.get(user.output)
    return None


def lacking(node: Node, given: Assignment, weights: Given) -> str | None:
    """Reason why the model's parameters do not make this node int8; None if they do."""
    policy = node.operator.policy
    shared = isinstance(policy, Unify) and not policy.rescales
    wide = node.output in given and given[node.output].is_wide
    for index in data_operands(node):
        value = node.inputs[index] if index < len(node.inputs) else None
        known = value is None or value in given or (shared and value.is_constant)
        if value is not None and not known:
            return f"the model has no parameters for its operand '{value.name}'"
        if value in given and given[value].axis is not None and not shared:
            return f"the model has several scales for its operand '{value.name}'"
        wide = wide or (value in given and given[value].is_wide)
    if wide and not reads_wide(node):
        return no_wide_form(node)
    if isinstance(policy, Accumulate):
        return None if node.name in weights else "the model has no integers for its weights"
    if node.output not in given and not isinstance(policy, Products):
        return f"the model does not quantize its result '{node.output.name}', or not in one way"
    return None


def take_weights(graph: Graph, log: PassLog) -> Given:
    """The integers of all weights that the model dequantizes, for nodes that take int8.

    int8 kernels have no zero point of weights, so it is subtracted. Where the differences do not fit int8,
    the weights have to be rounded again: they are None, and the log records an approximation. Weights
    with scales along another axis than the output channels are left out.
    """
    taken: Given = {}
    for node in graph.nodes:
        policy = node.operator.accumulate
        if policy is None:
            continue
        source = dequantized_constant(node.operand(policy.w))
        if source is None or source.data is None or source.type.quantization is None:
            continue
        axis = output_axis(node)
        if source.type.quantization.axis not in (None, axis):
            log.refused(node.name, f"%{source.name} has scales along another axis than output channels")
            continue
        taken[node.name] = _symmetric(source.data, source.type.quantization, axis)
        if taken[node.name] is None:
            why = "int8 without its zero points does not hold all of it: rounded to symmetric int8"
            log.applied(node.name, f"weights %{source.name}: {why}", exact=False)
    return taken


def _symmetric(data: Array, quantization: Quantization, axis: int) -> GivenIntegers | None:
    scales, zeros = parameters(quantization)
    along_axis = None if quantization.axis is None else axis
    centred = data.astype(np.int32) - along(zeros, data.ndim, along_axis, np.int32)
    if centred.size and (centred.min() < INT8_MIN or centred.max() > INT8_MAX):
        return None
    vector = np.broadcast_to(scales.reshape(-1), (data.shape[axis],)).astype(np.float32)
    return GivenIntegers(centred.astype(np.int8), vector, quantization.axis is None)


def unfit_sums(source: FloatWeights, x: Quantization, y: Quantization | None, per_tensor: bool) -> str | None:
    """Reason why a node cannot sum integers with the given parameters; None if it can."""
    try:
        made = integers(source, x.scale, per_tensor)
        if y is not None:
            multiplier(x.scale, made.scales, y.scale)
    except ValueError as error:
        return f"the model's parameters do not fit: {error}"
    if np.any(bias_scales(x.scale, made.scales) < np.finfo(np.float32).tiny):
        return "the model's parameters do not fit: a scale of its sums is subnormal"
    worst = worst_sum(made.weights, made.bias, x, source.axis)
    if accumulator_margin(worst) < 1.0:
        return f"its sums can reach {int(worst.max())}, beyond int32"
    return None
