"""Convolutions or matrix products of one value with constant weights, merged into one and sliced.

Every output channel is a sum of its own, so no bit changes as long as all results have the same
quantization parameters and bounds. Merged before quantization, the results would share one range, in
which narrow ones lose precision. So the pass runs on the way to instructions, in float or int8, and
refuses results with parameters of their own. Profiles, reports and exported models do not see it.

It pays where channels are few: products are computed in whole vectors of channels, and narrow results
leave most of a vector empty. The four heads of a detector, of 1, 4, 1 and 10 channels, need four vectors
when separate and one when merged. Wide results save nothing but repeated reads of their input, and each
slice of the merged result has gaps in memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.movement import Slice
from qglow.graph.rewriting import Outcome, RewritePass, operand

VECTOR = 16
"""Channels in one AVX-512 vector of int32 or float32 sums."""


@dataclass(frozen=True)
class MergeProducts(RewritePass):
    """Merge products that read the same value and agree in attributes, parameters and bounds."""

    name: ClassVar[str] = "merge-products"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Merge all products that may be merged with the first of them."""
        if node.operator.filters is None:
            return None
        x = operand(node, 0)
        others = [user for user in dict.fromkeys(x.users()) if user is not node and _same_window(node, user)]
        if not others or any(graph.nodes.place(user) < graph.nodes.place(node) for user in others):
            return None
        refusals = [_refusal(graph, node, user) for user in (node, *others)]
        fit = [user for user, refusal in zip(others, refusals[1:], strict=True) if refusal is None]
        first = next((refusal for refusal in refusals if refusal is not None), None)
        if refusals[0] is not None or not fit:
            return first
        parts = [node, *fit]
        channels = [part.output.type.shape[1] for part in parts]
        if _vectors([sum(channels)]) >= _vectors(channels):
            return Refused(f"results of {', '.join(map(str, channels))} channels fill their vectors")
        names = ", ".join(f"'{part.name}'" for part in fit)
        _merge(graph, parts)
        return f"takes in {names}: {' + '.join(map(str, channels))} channels at once"


def _vectors(channels: Sequence[int]) -> int:
    return sum(-(-count // VECTOR) for count in channels)


def _same_window(node: Node, other: Node) -> bool:
    """Whether two nodes of one operand differ in weights, bias and bounds alone."""
    filters = node.operator.filters
    if filters is None or filters.groups > 1 or other.inputs[0] is not node.inputs[0]:
        return False
    if node.operator.bounded(0.0, 0.0) != other.operator.bounded(0.0, 0.0):
        return False
    first, second = (list(operand(part, 1).type.shape) for part in (node, other))
    first[filters.outputs] = second[filters.outputs] = 0
    return first == second


def _refusal(graph: Graph, node: Node, other: Node) -> Refused | None:
    """Reason why `other` may not be merged with `node`; None if it may.

    If both are the same node: why that may not be merged with any other.
    """
    name, kind = other.name, other.output.type
    weights = [operand(part, 1) for part in (node, other)]
    biases = [part.operand("bias") for part in (node, other)]
    if any(value is not None and not value.is_constant for value in (*weights, *biases)):
        return Refused(f"weights or bias of '{name}' are computed")
    if kind.quantization != node.output.type.quantization:
        return Refused(f"the result of '{name}' has parameters of its own")
    if other.operator != node.operator:
        return Refused(f"'{name}' has bounds of its own")
    if len({None if bias is None else bias.type.element for bias in biases}) > 1:
        return Refused(f"only one of '{node.name}' and '{name}' has a bias")
    if len({_is_per_tensor(value) for value in weights}) > 1 or any(map(_is_per_tensor, weights)):
        return Refused(f"the weights of '{name}' have one scale, not one a channel")
    if graph.is_output(other.output):
        return Refused(f"%{other.output.name} is an output of the graph, which would be copied")
    reader = next((user for user in other.output.users() if not user.operator.takes_slices), None)
    if reader is not None:
        return Refused(f"{reader} would have to copy its part")
    return None


def _is_per_tensor(value: Value) -> bool:
    quantization = value.type.quantization
    return quantization is not None and quantization.axis is None


def _merge(graph: Graph, parts: list[Node]) -> None:
    first = parts[0]
    filters = first.operator.filters
    assert filters is not None
    weights = _joined(graph, [operand(part, 1) for part in parts], filters.outputs)
    biases = [bias for part in parts if (bias := part.operand("bias")) is not None]
    constants = [weights, *([_joined(graph, biases, 0)] if biases else [])]
    results = [part.output for part in parts]
    total = sum(value.type.shape[1] for value in results)
    kind = results[0].type.with_shape((results[0].type.shape[0], total, *results[0].type.shape[2:]))
    merged = Value(graph.unique_name(f"{results[0].name}.merged"), kind)
    product = Node(first.name, first.operator, [operand(first, 0), *constants], [merged])
    graph.insert_before(first, product)
    first.name = graph.unique_name(f"{first.name}.part")
    start = 0
    for part, value in zip(parts, results, strict=True):
        end, rank = start + value.type.shape[1], len(kind.shape)
        starts, ends = (0, start, *(0,) * (rank - 2)), (kind.shape[0], end, *kind.shape[2:])
        part.operator, part.inputs = Slice(starts, ends, (1,) * rank), (merged,)
        start = end


def _joined(graph: Graph, values: list[Value], axis: int) -> Value:
    """Constants concatenated along an axis, with their scales and zero points."""
    data = np.concatenate([np.asarray(value.data) for value in values], axis)
    found = [value.type.quantization for value in values]
    known = [quantization for quantization in found if quantization is not None]
    scales = tuple(scale for quantization in known for scale in quantization.scales)
    zeros = tuple(zero for quantization in known for zero in quantization.zero_points)
    joined = dataclasses.replace(known[0], scales=scales, zero_points=zeros) if known else None
    return constant(graph.unique_name(f"{values[0].name}.merged"), np.ascontiguousarray(data), joined)
