"""The float graph as plain ONNX."""

from __future__ import annotations

import math
from pathlib import Path

import onnx

from qglow.core.errors import InternalError
from qglow.exporter.control import export_structured
from qglow.exporter.files import write_model
from qglow.exporter.opaque import export_opaque, export_tail, output_types
from qglow.exporter.operators import clamp, export_operator, fused_bounds
from qglow.exporter.proto import ProtoBuilder
from qglow.graph.graph import Graph, Node


def export_float(graph: Graph, path: Path | str | None = None) -> onnx.ModelProto:
    """A float graph as ONNX: values keep their names, fused bounds become Relu or Clip.

    Profiling nodes have no ONNX form and no effect on results; they are left out. Raises
    InternalError for a graph that holds quantized values.
    """
    quantized = [v.name for v in graph.values() if v.type.is_quantized]
    if quantized:
        raise InternalError(f"{quantized[0]} is quantized; export_qdq writes quantized graphs")
    results = () if graph.tail is None else graph.tail.results
    builder = ProtoBuilder([*(v.name for v in graph.values()), *results])
    _write(builder, graph)
    if graph.tail is not None:
        export_tail(builder, graph.tail)
    model = builder.finish(
        graph.name,
        [(v.name, v.type) for v in graph.inputs],
        output_types(graph),
    )
    write_model(model, path)
    return model


def _write(builder: ProtoBuilder, graph: Graph) -> None:
    """Write constants and nodes of a graph, or of a region under names that no others have."""
    for value in graph.constants():
        assert value.data is not None
        builder.initializer(value.name, value.data)
    for node in graph.nodes:
        if node.outputs:
            _export(builder, node)


def _export(builder: ProtoBuilder, node: Node) -> None:
    inputs = ["" if v is None else v.name for v in node.inputs]
    if node.operator.hosted is not None:
        export_opaque(builder, node, node.operator.hosted, inputs)
        return
    if node.operator.region_names:
        export_structured(builder, node, inputs, _write)
        return
    bounds = fused_bounds(node.operator)
    if bounds == (-math.inf, math.inf):
        export_operator(builder, node, inputs, node.output.name)
        return
    raw = builder.fresh(f"{node.output.name}__unclipped")
    export_operator(builder, node, inputs, raw)
    clamp(builder, f"{node.name}__clamp", raw, bounds, node.output.name)
