"""Inputs and outputs of the model as int8, for callers that work with integers themselves."""

from __future__ import annotations

from collections.abc import Mapping

from qglow.core.types import Quantization
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.quantization.assign import Assignment, fixed_parameters
from qglow.quantization.ranges import Ranges

Interface = Mapping[str, Quantization]


def interface_parameters(
    graph: Graph, assignment: Assignment, ranges: Ranges, states: Mapping[str, str]
) -> Interface:
    """Return int8 parameters for every float input and output of a graph, by name.

    They are those that int8 nodes have for the value. A value of float nodes alone, or one in int16, gets
    those that its operator fixes, else those of its range. What a tail reads stays float. states: inputs
    with an output each that the next call reads there, which takes over the parameters of the input.
    """
    read = () if graph.tail is None else graph.tail.operands
    values = [v for v in [*graph.inputs, *graph.outputs] if v.type.is_float and v.name not in read]
    found = {value.name: _parameters(value, assignment.get(value), ranges) for value in values}
    shared = {output: found[name] for name, output in states.items() if name in found and output in found}
    return found | shared


def _parameters(value: Value, assigned: Quantization | None, ranges: Ranges) -> Quantization:
    if assigned is not None and not assigned.is_wide:
        return assigned
    return fixed_parameters(value) or ranges.parameters(ranges.of(value), ranges.schema(value))


def make_interface_int8(graph: Graph, parameters: Interface) -> None:
    """Give these inputs and outputs int8 types, in place: inputs are dequantized, outputs quantized.

    Values keep their names. Folding removes conversions that meet their inverse.
    """
    for value in graph.inputs:
        if value.name in parameters:
            _input(graph, value, parameters[value.name])
    for value in list(dict.fromkeys(graph.outputs)):
        if value.name in parameters and value.type.is_float:
            _output(graph, value, parameters[value.name])


def _input(graph: Graph, value: Value, quantization: Quantization) -> None:
    real = Value(graph.unique_name(f"{value.name}_float"), value.type)
    graph.replace_value(value, real)
    value.type = value.type.quantized(quantization)
    node = Node(graph.unique_name(f"dequantize_{value.name}"), Dequantize(), [value], [real])
    graph.insert_before(graph.nodes[0] if graph.nodes else None, node)


def _output(graph: Graph, value: Value, quantization: Quantization) -> None:
    name = value.name
    value.name = graph.unique_name(f"{name}_float")
    result = Value(name, value.type.quantized(quantization))
    node = Node(graph.unique_name(f"quantize_{name}"), Quantize(), [value], [result])
    graph.insert_before(None, node)
    graph.outputs = [result if output is value else output for output in graph.outputs]
