"""Opaque nodes on their way out: the very nodes that came in, under the names of the graph's values."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import ModelProto, NodeProto

from qglow.core.errors import UnsupportedError
from qglow.core.types import TensorType
from qglow.exporter.proto import OLDEST_OPSET, ProtoBuilder
from qglow.graph.graph import Graph, Node
from qglow.host.nodes import HostedNodes
from qglow.host.session import decode
from qglow.host.tail import HostedTail
from qglow.interchange.nodes import all_nodes, rename, since_version


def export_opaque(builder: ProtoBuilder, node: Node, hosted: HostedNodes, inputs: Sequence[str]) -> None:
    """Write the nodes of an opaque node. Raises UnsupportedError where the exported opset means others."""
    _export(builder, hosted.model, node.name, inputs, [output.name for output in node.outputs])


def export_tail(builder: ProtoBuilder, tail: HostedTail) -> None:
    """Write the nodes of a tail, behind the nodes that compute what it reads. Raises as `export_opaque`."""
    _export(builder, tail.model, tail.nodes[0], tail.operands, tail.results)


def output_types(graph: Graph) -> list[tuple[str, TensorType | onnx.TypeProto]]:
    """Names of the model's outputs with their types, as ONNX has them for results of a tail."""
    types: dict[str, TensorType | onnx.TypeProto] = {value.name: value.type for value in graph.outputs}
    if graph.tail is None:
        return list(types.items())
    results = ModelProto.FromString(decode(graph.tail.model)).graph.output
    for name, value in zip(graph.tail.results, results, strict=True):
        types[name] = value.type
    return [(name, types[name]) for name in graph.tail.outputs]


def _export(
    builder: ProtoBuilder, text: str, name: str, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    given = ModelProto.FromString(decode(text))
    for entry in given.opset_import:
        if entry.domain:
            builder.version(entry.domain, entry.version)
    model = for_export(given, name)
    names = {value.name: read for value, read in zip(model.graph.input, inputs, strict=True)}
    for tensor in model.graph.initializer:
        names[tensor.name] = builder.tensor(f"{name}__{tensor.name}", tensor)
    results = {v.name: output for v, output in zip(model.graph.output, outputs, strict=True)}
    for inner in model.graph.node:
        copy = NodeProto()
        copy.CopyFrom(inner)
        rename(copy, names, lambda inside: builder.fresh(f"{name}__{inside}"), results)
        builder.append(copy, name)


def for_export(model: ModelProto, name: str) -> ModelProto:
    """The model with nodes that mean the same in the exported operator set."""
    (stated,) = (entry.version for entry in model.opset_import if not entry.domain)
    wanted = max(OLDEST_OPSET, stated)
    changed = [
        node
        for node in all_nodes(model.graph.node)
        if since_version(node, stated) != since_version(node, wanted)
    ]
    if not changed:
        return model
    try:
        return onnx.version_converter.convert_version(model, wanted)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise UnsupportedError(
            f"node '{name}' ({changed[0].op_type}) is of opset {stated}, and has no form in opset "
            f"{wanted}, which the exported model has; export the model for "
            "a newer opset"
        ) from error
