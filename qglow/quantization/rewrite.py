"""Rewriting of a graph to int8, with conversions around every node: folding removes the needless ones."""

from __future__ import annotations

from collections.abc import Iterable

from qglow.core.types import Quantization
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Recur, Unify
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.numerics.quantize import quantize_by
from qglow.quantization.assign import Assignment, NarrowOperands
from qglow.quantization.placement import data_operands
from qglow.quantization.states import set_state_weights
from qglow.quantization.weights import Sources, set_integers


def rewrite(
    graph: Graph,
    int8: Iterable[Node],
    parameters: Assignment,
    sources: Sources,
    per_tensor: bool,
    narrow: NarrowOperands | None = None,
) -> None:
    """Give these nodes of `graph` their integer form, in place.

    Each reads its operands through Quantize nodes, one for each pair of value and parameters, and its
    result is read through a Dequantize; a sum whose result has no parameters gives float. Operands in
    `narrow` are read with the parameters there. An integer result keeps the value's name, unless the value
    is an output of the graph; then the float result does.
    """
    rewriter = _Rewriter(graph, parameters, sources, per_tensor, narrow or {})
    for node in list(int8):
        rewriter.node(node)


class _Rewriter:
    def __init__(
        self,
        graph: Graph,
        parameters: Assignment,
        sources: Sources,
        per_tensor: bool,
        narrow: NarrowOperands,
    ) -> None:
        self._graph = graph
        self._parameters = dict(parameters)
        self._sources = sources
        self._per_tensor = per_tensor
        self._narrow = narrow
        self._quantized: dict[tuple[Value, Quantization], Value] = {}

    def node(self, node: Node) -> None:
        policy = node.operator.policy
        result = self._parameters.get(node.output)
        shares = isinstance(policy, Recur) or (isinstance(policy, Unify) and not policy.rescales)
        same = result if shares else None
        operands = list(node.inputs)
        for index in data_operands(node):
            value = operands[index] if index < len(operands) else None
            if value is not None:
                own = self._narrow.get((node.name, index), self._parameters[value])
                operands[index] = self._quantize(value, same or own)
        node.inputs = operands
        if result is not None:
            self._dequantize(node, result)
        if node.operator.accumulate is not None:
            set_integers(self._graph, node, self._sources[node.name], self._per_tensor)
        if isinstance(policy, Recur):
            set_state_weights(self._graph, node, policy, self._per_tensor)

    def _quantize(self, value: Value, quantization: Quantization) -> Value:
        """Return the value in integers with these parameters, through a Quantize unless it is constant."""
        key = (value, quantization)
        if key in self._quantized:
            return self._quantized[key]
        name = self._graph.unique_name(_integer_name(value.name, quantization))
        if value.data is not None:
            self._quantized[key] = constant(name, quantize_by(value.data, quantization), quantization)
            return self._quantized[key]
        result = Value(name, value.type.quantized(quantization))
        node = Node(self._graph.unique_name(f"quantize_{value.name}"), Quantize(), [value], [result])
        if value.producer is None:
            self._graph.insert_before(self._graph.nodes[0], node)
        else:
            self._graph.insert_after(value.producer, node)
        self._quantized[key] = result
        return result

    def _dequantize(self, node: Node, quantization: Quantization) -> None:
        """Make the node's result integers and let its users read it dequantized."""
        given = node.output
        real = Value(self._graph.unique_name(f"{given.name}_float"), given.type)
        self._graph.replace_value(given, real)
        given.type = given.type.quantized(quantization)
        name = self._graph.unique_name(f"dequantize_{given.name}")
        self._graph.insert_after(node, Node(name, Dequantize(), [given], [real]))
        if self._graph.is_output(real):
            fresh = self._graph.unique_name(_integer_name(given.name, quantization))
            given.name, real.name = fresh, given.name
        self._parameters[real] = self._parameters[given]


def _integer_name(name: str, quantization: Quantization) -> str:
    return f"{name}_int16" if quantization.is_wide else f"{name}_int8"


def real_name(name: str, quantization: Quantization) -> str:
    """Name of the value that an integer constant of this name has the elements of."""
    return name.rpartition(_integer_name("", quantization))[0]
