"""Splitting of Gemms into groups of inputs, so that the weights of each group have their own scales.

Without groups, one scale per output channel has to serve all its K weights. Each part of a Gemm that is
split along K is a Gemm with its own scales, whose exact int32 sums become float
(`float32(acc) * float32(s_x * s_w)`); these are added in float, in the order of the groups, and then
quantized. All these nodes are in the graph, so that exports have them and results are the same everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array, float_type
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Slice
from qglow.graph.rewriting import operand
from qglow.profiling.histogram import ChannelProfile, ValueProfile
from qglow.quantization.choices import Choices
from qglow.quantization.equalize import Statistics
from qglow.quantization.placement import FloatReasons

PASS = "group-weights"
REASON = "it adds what groups of weights give in float"


@dataclass
class WeightGroups:
    """Cuts the Gemms of a graph into groups of `size` inputs, in place, and adds statistics of new values.

    partial: results of groups, which are float. reasons: why nodes stay float; the additions are added.
    """

    graph: Graph
    statistics: Statistics
    reasons: FloatReasons
    choices: Choices
    size: int
    partial: set[Value] = field(default_factory=set)
    _parts: dict[tuple[Value, int], Value] = field(default_factory=dict)

    def run(self, log: PassLog) -> None:
        """Cut every int8 Gemm that has more inputs than a group."""
        log.pass_name = PASS
        for node in list(self.graph.nodes):
            if log.exhausted:
                return
            if not isinstance(node.operator, Gemm):
                continue
            reason = self._refusal(node)
            if reason is not None:
                log.refused(node.name, reason)
                continue
            length = operand(node).type.shape[1]
            count = self._cut(node)
            log.applied(node.name, f"{length} inputs in {count} groups, each with scales of its own")

    def _refusal(self, node: Node) -> str | None:
        if node in self.reasons:
            return "it stays float"
        if self.choices.of_node(node).per_tensor:
            return "one scale for all its weights is wanted"
        if self.choices.of_node(node).wide:
            return "groups give their sums in float, and its result is to be int16"
        length = operand(node).type.shape[1]
        return f"its {length} inputs are one group" if length <= self.size else None

    def _cut(self, node: Node) -> int:
        """Cut a Gemm and return the number of groups. Its node becomes the last addition, with its bounds."""
        graph, operator = self.graph, node.operator
        assert isinstance(operator, Gemm)
        x, weights = operand(node), operand(node, 1)
        bias = node.operand("bias")
        assert weights.data is not None
        starts = range(0, weights.data.shape[0], self.size)
        total: Value | None = None
        for index, start in enumerate(starts):
            rows = weights.data[start : start + self.size]
            part, own = self._part(node, x, start), self._rows(weights, index, rows)
            name = graph.unique_name(f"{node.name}.group{index}")
            result = self._result(node, graph.unique_name(f"{node.output.name}.group{index}"))
            graph.insert_before(node, Node(name, Gemm(), [part, own, bias if index == 0 else None], [result]))
            self.partial.add(result)
            if total is None:
                total = result
            elif start != starts[-1]:
                total = self._sum(node, total, result)
            else:
                last = Add(lo=operator.lo, hi=operator.hi)
                node.operator, node.inputs = last, (total, result)
                self.reasons[node] = REASON
        return len(starts)

    def _sum(self, node: Node, left: Value, right: Value) -> Value:
        result = self._result(node, self.graph.unique_name(f"{node.output.name}.sum"))
        added = Node(self.graph.unique_name(f"{node.name}.sum"), Add(), [left, right], [result])
        self.graph.insert_before(node, added)
        self.reasons[added] = REASON
        return result

    def _result(self, node: Node, name: str) -> Value:
        """Return a new value of the type of the node's result; it stays float, so its range is not used."""
        self.statistics[name] = ValueProfile(low=0.0, high=0.0)
        return Value(name, node.output.type)

    def _rows(self, weights: Value, index: int, rows: Array) -> Value:
        return constant(self.graph.unique_name(f"{weights.name}.group{index}"), np.ascontiguousarray(rows))

    def _part(self, node: Node, x: Value, start: int) -> Value:
        """Return the columns of x for a group; Gemms that read the same x share them."""
        if (x, start) in self._parts:
            return self._parts[x, start]
        rows, length = x.type.shape
        end = min(start + self.size, length)
        name = self.graph.unique_name(f"{x.name}.from{start}")
        part = Value(name, float_type(rows, end - start))
        cut = Slice((0, start), (rows, end), (1, 1))
        self.graph.insert_before(node, Node(self.graph.unique_name(f"slice_{name}"), cut, [x], [part]))
        self.statistics[name] = _columns(self.statistics.get(x.name), start, end)
        self._parts[x, start] = part
        return part


def _columns(profile: ValueProfile | None, start: int, end: int) -> ValueProfile:
    """Profile of the channels from `start` to `end`: ranges and means if they are known, no histogram."""
    if profile is None:
        return ValueProfile(low=-math.inf, high=math.inf)
    channels = profile.channels
    if channels is None or channels.axis != 1:
        return ValueProfile(low=profile.low, high=profile.high)
    arrays = (channels.low, channels.high, channels.whole, channels.fraction)
    taken = ChannelProfile(1, *(array[start:end] for array in arrays))
    return ValueProfile(low=float(taken.low.min()), high=float(taken.high.max()), channels=taken)
