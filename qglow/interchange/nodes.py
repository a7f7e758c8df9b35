"""ONNX nodes with all that their bodies hold: the values that they read, their operators, new names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

Default = TypeVar("Default", int, None)


def outer_names(proto: NodeProto) -> list[str]:
    """Names of the values that a node reads, also in the bodies that it has, each once."""
    return outer_inputs([proto])


def integer_attribute(proto: NodeProto, name: str, default: Default) -> int | Default:
    """An integer attribute of a node; the default where it states none."""
    return next((int(each.i) for each in proto.attribute if each.name == name), default)


def is_defined(proto: NodeProto, opset: int) -> bool:
    """Whether onnx knows the operator of a node of ONNX's own domain; true for other domains."""
    return proto.domain not in ("", "ai.onnx") or bool(onnx.defs.has(proto.op_type, opset, ""))


def is_deprecated(proto: NodeProto, opset: int) -> bool:
    """Whether ONNX has withdrawn the definition, so that its checker refuses what runtimes run."""
    standard = proto.domain in ("", "ai.onnx")
    return standard and is_defined(proto, opset) and _schema(proto, opset).deprecated


def _schema(proto: NodeProto, opset: int) -> onnx.defs.OpSchema:
    return onnx.defs.get_schema(proto.op_type, opset, "")


def since_version(proto: NodeProto, opset: int) -> int:
    """The operator set that defined the operator of a node; 1 for other domains and unknown operators."""
    if proto.domain not in ("", "ai.onnx"):
        return 1
    try:
        return int(onnx.defs.get_schema(proto.op_type, opset, "").since_version)
    except onnx.defs.SchemaError:
        return 1


def rename(
    node: NodeProto,
    names: dict[str, str],
    fresh: Callable[[str], str],
    results: Mapping[str, str] | None = None,
) -> None:
    """Rename the values of a node and of its bodies, and remove what means nothing to a runtime.

    names: new names of what is known before the node, to which those of its results are added. fresh: gives
    a new name for an old one, but for those of `results` that the node has itself.
    """
    for field in ("name", "doc_string", "metadata_props"):
        node.ClearField(field)
    node.input[:] = [names[name] if name else "" for name in node.input]
    for attribute in node.attribute:
        attribute.ClearField("doc_string")
        for body in bodies(attribute):
            _rename_body(body, dict(names), fresh)
    for name in node.output:
        if name:
            names[name] = (results or {}).get(name) or fresh(name)
    node.output[:] = [names[name] if name else "" for name in node.output]


def _rename_body(body: GraphProto, names: dict[str, str], fresh: Callable[[str], str]) -> None:
    del body.value_info[:]
    body.name = "body"
    body.ClearField("doc_string")
    for one in (*body.input, *body.initializer):
        names[one.name] = fresh(one.name)
        one.name = names[one.name]
    for node in body.node:
        rename(node, names, fresh)
    for value in body.output:
        value.name = names[value.name]


def clear_stated_shapes(nodes: Iterable[NodeProto]) -> None:
    """Remove the shapes that bodies of nodes state of their inputs and outputs; element types stay.

    Those of the number of the round and of the condition stay: onnxruntime wants them.
    """
    for node in all_nodes(nodes):
        own = 2 if node.op_type == "Loop" else 0
        for attribute in node.attribute:
            for body in bodies(attribute):
                for value in (*body.input[own:], *body.output):
                    value.type.tensor_type.ClearField("shape")


def bodies(attribute: AttributeProto) -> Iterator[GraphProto]:
    """Graphs that an attribute holds."""
    if attribute.type == AttributeProto.GRAPH:
        yield attribute.g
    yield from attribute.graphs


def tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    """Constants that an attribute holds, also in bodies of it."""
    if attribute.type == AttributeProto.TENSOR:
        yield attribute.t
    yield from attribute.tensors
    for body in bodies(attribute):
        yield from body.initializer
        for node in body.node:
            for inner in node.attribute:
                yield from tensors(inner)


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes and those of their bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for body in bodies(attribute):
                yield from all_nodes(body.node)


def outer_inputs(nodes: Sequence[NodeProto]) -> list[str]:
    """Names that nodes in topological order read and do not define, each once."""
    defined: set[str] = set()
    found: dict[str, None] = {}
    for node in nodes:
        read = [name for name in node.input if name]
        for attribute in node.attribute:
            for body in bodies(attribute):
                own = {v.name for v in body.input} | {t.name for t in body.initializer}
                read += [name for name in outer_inputs(body.node) if name not in own]
                inside = own | {name for inner in body.node for name in inner.output}
                read += [v.name for v in body.output if v.name not in inside]
        found.update(dict.fromkeys(name for name in read if name not in defined))
        defined.update(node.output)
    return list(found)
