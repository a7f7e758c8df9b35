"""Every intermediate tensor of a batch: of the float graph, of the QDQ model, of the running program."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.numerics.quantize import as_signed, as_unsigned
from qglow.quantization.scaled_later import is_scaled_later, scaled_result, scales_of_rows
from qglow.report.oracle import OnnxruntimeModel


class FloatTensors:
    """onnxruntime on a float graph, giving every value by its name."""

    def __init__(self, graph: Graph) -> None:
        from qglow.exporter import export_float
        from qglow.exporter.expose import expose_outputs, produced_names

        model = export_float(graph).SerializeToString()
        produced = produced_names(model)
        wanted = [v.name for node in graph.nodes for v in node.outputs if v.name in produced]
        self._session = OnnxruntimeModel(expose_outputs(model, wanted))

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Every value of one batch, inputs included."""
        return {**inputs, **self._session(inputs)}


class QdqTensors:
    """onnxruntime on the exported form of an int8 graph, giving values by their names in the graph.

    Quantized values are int8. The optimised run gives only these and the model's outputs, because
    asking for a float value between two nodes would keep them from being fused.
    """

    def __init__(self, graph: Graph, *, optimize: bool) -> None:
        from qglow.exporter import export_qdq, quantized_value_names
        from qglow.exporter.expose import expose_outputs, produced_names

        model = export_qdq(graph).SerializeToString()
        integers = quantized_value_names(graph)
        produced = produced_names(model)
        names = {
            integers.get(v.name, v.name): v.name
            for node in graph.nodes
            for v in node.outputs
            if v.is_constant is False and (v.type.is_quantized or not optimize or graph.is_output(v))
        }
        self._names = {name: value for name, value in names.items() if name in produced}
        self._integers = set(integers.values())
        exposed = expose_outputs(model, self._names)
        self._session = OnnxruntimeModel(exposed, optimize=optimize, exact_sums=True)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The values of one batch by name, inputs included, of inputs in the types of the graph."""
        found: dict[str, Array] = dict(inputs)
        given = {name: _unsigned(array) for name, array in inputs.items()}
        for name, array in self._session(given).items():
            if name in self._names:
                found[self._names[name]] = _signed(array) if name in self._integers else array
        return found


def counterpart(float_graph: Graph, int8_graph: Graph) -> dict[str, str]:
    """Map every value of the int8 graph to the float value that it stands for, by names.

    Nodes keep their names when they are quantized; conversions stand for what they convert. Of nodes whose
    integers are scaled later the reals that these become stand for the result.
    """
    nodes = {node.name: node for node in float_graph.nodes}
    names = {value.name: value.name for value in int8_graph.inputs}
    scales = [scales_of_rows(node) for node in int8_graph.nodes]
    others = {value.producer for value in scales if value is not None}
    for node in int8_graph.nodes:
        if is_scaled_later(node):
            result, twin = scaled_result(node), nodes.get(node.name)
            if result is not None and twin is not None:
                names[result.name] = twin.output.name
        if is_scaled_later(node) or node in others:
            continue
        for value in node.outputs:
            name = _counterpart(node, value, nodes, names)
            if name is not None:
                names[value.name] = name
    return names


def _counterpart(node: Node, value: Value, nodes: Mapping[str, Node], names: Mapping[str, str]) -> str | None:
    twin = nodes.get(node.name)
    if twin is not None:
        return twin.outputs[value.index].name
    if value.name in names:
        return names[value.name]  # the integers that it is made of were met before
    source = node.inputs[0] if node.inputs else None
    if source is not None and node.operator.conversion is not None:
        return names.get(source.name)
    return None


def is_exact_when_fused(node: Node) -> bool:
    """Whether onnxruntime's int8 kernel follows the same arithmetic; other operators it runs in float."""
    return node.operator.exact_in_onnxruntime


def _signed(array: Array) -> Array:
    """uint8 with zero point + 128 as the int8 that it stands for."""
    return as_signed(array) if array.dtype == np.uint8 else array


def _unsigned(array: Array) -> Array:
    """An int8 input as the model takes it."""
    return as_unsigned(array) if array.dtype == np.int8 else array
