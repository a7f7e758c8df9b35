"""Opaque nodes on their way out: the very nodes that came in, under the names of the graph's values."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import ModelProto, NodeProto

from qglow.core.errors import UnsupportedError
from qglow.exporter.proto import OLDEST_OPSET, ProtoBuilder
from qglow.graph.graph import Node
from qglow.host.nodes import HostedNodes
from qglow.host.session import decode
from qglow.interchange.nodes import all_nodes, rename, since_version


def export_opaque(builder: ProtoBuilder, node: Node, hosted: HostedNodes, inputs: Sequence[str]) -> None:
    """Write the nodes of an opaque node. Raises UnsupportedError where the exported opset means others."""
    model = _for_export(ModelProto.FromString(decode(hosted.model)), node.name)
    names = {value.name: given for value, given in zip(model.graph.input, inputs, strict=True)}
    for tensor in model.graph.initializer:
        names[tensor.name] = builder.tensor(f"{node.name}__{tensor.name}", tensor)
    results = {v.name: output.name for v, output in zip(model.graph.output, node.outputs, strict=True)}
    for inner in model.graph.node:
        copy = NodeProto()
        copy.CopyFrom(inner)
        rename(copy, names, lambda name: builder.fresh(f"{node.name}__{name}"), results)
        builder.append(copy, node.name)


def _for_export(model: ModelProto, name: str) -> ModelProto:
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
