"""If nodes whose condition is known, replaced by the nodes of the branch that they take.

https://onnx.ai/onnx/operators/onnx__If.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnx import ModelProto, NodeProto, TensorProto, helper

from qglow.core.types import Given
from qglow.importer.binding import real_inputs
from qglow.importer.control import body_of, label_of, node_of_body
from qglow.importer.loading import ModelFile
from qglow.importer.tensors import to_array
from qglow.importer.values import bind_values, given_arrays
from qglow.interchange.nodes import outer_inputs


def with_values_bound(model: ModelFile, values: Mapping[str, Given]) -> ModelFile:
    """The model with these inputs as constants, and without If nodes that read one as their condition.

    The tensors of a branch have the names that an import gives them: `NODE__TENSOR`. Raises UsageError for
    values that do not fit.
    """
    proto = bind_values(model.proto, given_arrays(real_inputs(model.proto.graph), values))
    conditions = {t.name: t for t in proto.graph.initializer if t.data_type == TensorProto.BOOL}
    if not values and not any(_is_decided(node, conditions) for node in model.nodes):
        return model
    nodes, added = list(model.nodes), list[TensorProto]()
    while any(_is_decided(node, conditions) for node in nodes):
        following: list[NodeProto] = []
        for node in nodes:
            if _is_decided(node, conditions):
                inner, constants_of = _branch(node, conditions)
                following += inner
                added += constants_of
            else:
                following.append(node)
        nodes = following
    return replace(model, proto=_with_nodes(proto, nodes, added), nodes=tuple(nodes))


def _is_decided(node: NodeProto, conditions: Mapping[str, TensorProto]) -> bool:
    return node.op_type == "If" and node.domain in ("", "ai.onnx") and node.input[0] in conditions


def _branch(
    node: NodeProto, conditions: Mapping[str, TensorProto]
) -> tuple[list[NodeProto], list[TensorProto]]:
    """Nodes and constants in place of a node."""
    taken = bool(to_array(conditions[node.input[0]], None).all())
    body, label = body_of(node, "then_branch" if taken else "else_branch"), label_of(node)
    names = {name: name for name in outer_inputs(body.node)} | {v.name: v.name for v in body.output}
    constants = []
    for tensor in body.initializer:
        names[tensor.name] = f"{label}__{tensor.name}"
        constants.append(TensorProto.FromString(tensor.SerializeToString()))
        constants[-1].name = names[tensor.name]
    inner = [node_of_body(one, label, names, str) for one in body.node]
    results = zip(body.output, node.output, strict=True)
    inner += [helper.make_node("Identity", [names[v.name]], [output]) for v, output in results if output]
    return inner, constants


def _with_nodes(proto: ModelProto, nodes: list[NodeProto], constants: list[TensorProto]) -> ModelProto:
    """A copy with these nodes, and further constants."""
    made = ModelProto()
    made.CopyFrom(proto)
    made.graph.ClearField("node")
    made.graph.node.extend(nodes)
    made.graph.initializer.extend(constants)
    return made
