"""Functions in place of the nodes that call them: the model's own, and those that define ONNX's operators.

https://onnx.ai/onnx/intro/concepts.html#functions
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx
from onnx import ModelProto, NodeProto, helper, inliner

from qglow.core.errors import ModelError
from qglow.graph.plugins import load_operator_plugins
from qglow.importer.rules import DOMAINS
from qglow.interchange.inference import InferenceRefused, infer_types

MOST_NODES = 1_000_000
"""Nodes that the functions of a model may become."""

_SPELLED_OUT = "spelled.out"
"""Domain of functions that stand for single nodes."""
_GET_FUNCTION = "get_context_dependent_function_with_opset_version"
"""Method that the types which onnx declares for its own extension leave out."""

FAILURES = (RuntimeError, ValueError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError)
"""What onnx raises where a function does not fit its caller. The node stays, and is refused by name."""


def with_functions_inlined(proto: ModelProto, nodes: Sequence[NodeProto]) -> ModelProto:
    """Inline the model's own functions, and those of operators without an import rule.

    `nodes` are the model's in topological order. Where there is nothing to inline the model itself returns.
    """
    if proto.functions:
        proto = _own_inlined(proto)
        nodes = proto.graph.node
    versions = {_standard(entry.domain): entry.version for entry in proto.opset_import}
    defined = {key for key in map(_key, nodes) if _is_defined_by_function(*key, versions)}
    return _definitions_inlined(proto, nodes, defined) if defined else proto


def _own_inlined(proto: ModelProto) -> ModelProto:
    """The model without functions of its own, but for those of a domain that an import rule knows."""
    ruled = [(f.domain, f.name) for f in proto.functions if f.domain and f.name in DOMAINS.get(f.domain, {})]
    _check_extent(proto)
    try:
        if ruled:
            return inliner.inline_selected_functions(proto, ruled, exclude=True)
        return inliner.inline_local_functions(proto, convert_version=True)
    except FAILURES:
        return proto


def _check_extent(proto: ModelProto) -> None:
    """Raise ModelError where a function calls itself, or functions become too many nodes."""
    bodies = {(_standard(f.domain), f.name): f.node for f in proto.functions}
    counts: dict[tuple[str, str], int] = {}

    def count(nodes: Iterable[NodeProto], callers: tuple[tuple[str, str], ...]) -> int:
        total = 0
        for key, inner in map(_call, nodes):
            total += 1 + sum(count(body, callers) for body in inner)
            if key in callers:
                raise ModelError(f"function '{key[1]}' of the model calls itself; export the model again")
            if key in bodies and key not in counts:
                counts[key] = count(bodies[key], (*callers, key))
            total += counts.get(key, 0)
        if total > MOST_NODES:
            raise ModelError(f"the functions of the model become more than {MOST_NODES} nodes")
        return total

    count(proto.graph.node, ())


def _call(node: NodeProto) -> tuple[tuple[str, str], list[Sequence[NodeProto]]]:
    """Name what a node calls, and list the bodies that stand in it."""
    return _key(node), [a.g.node for a in node.attribute if a.HasField("g")]


def _definitions_inlined(
    proto: ModelProto, nodes: Sequence[NodeProto], defined: set[tuple[str, str]]
) -> ModelProto:
    ordered, typed = [*nodes], ModelProto()
    typed.CopyFrom(proto)
    del typed.graph.node[:]
    typed.graph.node.extend(ordered)
    # The inliner asks for the types of operands, and finds those of initializers only here.
    stated = {value.name for value in (*typed.graph.value_info, *typed.graph.input)}
    typed.graph.value_info.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in typed.graph.initializer
        if tensor.name not in stated
    )
    known = [(domain, name) for domain, rules in DOMAINS.items() for name in rules]
    for model in (_spelled_out(typed, defined), typed):
        try:
            return inliner.inline_selected_functions(model, known, exclude=True, inline_schema_functions=True)
        except FAILURES:
            continue
    return _one_by_one(proto, typed, defined)


def _spelled_out(model: ModelProto, defined: set[tuple[str, str]]) -> ModelProto:
    """The model with local functions for the operators that are called without one of their inputs.

    onnx's inliner asks for the type of every input, and there is none of one that is left out.
    """
    if not any(_key(node) in defined and "" in node.input for node in model.graph.node):
        return model
    typed = ModelProto()
    typed.CopyFrom(model)
    calls = [node for node in typed.graph.node if _key(node) in defined and "" in node.input]
    try:
        inferred = infer_types(typed)
    except InferenceRefused:
        return model
    values = (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
    types = {value.name: value.type.SerializeToString() for value in values}
    versions = {_standard(entry.domain): entry.version for entry in typed.opset_import}
    for number, node in enumerate(calls):
        schema = onnx.defs.get_schema(node.op_type, versions[_standard(node.domain)], node.domain)
        if not getattr(schema, "has_context_dependent_function", False) or any(
            n and n not in types for n in node.input
        ):
            continue
        try:
            body = getattr(schema, _GET_FUNCTION)(
                versions[_standard(node.domain)],
                node.SerializeToString(),
                [types.get(name, b"") for name in node.input],
            )
        except FAILURES:
            continue
        function = onnx.FunctionProto.FromString(body)
        function.domain, function.name = _SPELLED_OUT, f"{node.op_type}_{number}"
        typed.functions.append(function)
        node.domain, node.op_type = function.domain, function.name
    if typed.functions:
        typed.opset_import.append(helper.make_opsetid(_SPELLED_OUT, 1))
    return typed


def _one_by_one(proto: ModelProto, typed: ModelProto, defined: set[tuple[str, str]]) -> ModelProto:
    """The model without those functions that can be inlined where another one cannot."""
    result = proto
    for key in sorted(defined):
        try:
            result = typed = inliner.inline_selected_functions(typed, [key], inline_schema_functions=True)
        except FAILURES:
            continue
    return result


def _key(node: NodeProto) -> tuple[str, str]:
    return _standard(node.domain), node.op_type


def _standard(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _is_defined_by_function(domain: str, op_type: str, versions: dict[str, int]) -> bool:
    """Whether nothing imports the operator, a plugin neither, and ONNX defines it by others."""
    if op_type not in DOMAINS.get(domain, {}):
        load_operator_plugins()
    if op_type in DOMAINS.get(domain, {}) or domain not in versions:
        return False
    try:
        schema = onnx.defs.get_schema(op_type, versions[domain], domain)
    except onnx.defs.SchemaError:
        return False
    # The types that onnx declares for its own extension leave these out.
    return any(getattr(schema, name) for name in ("has_function", "has_context_dependent_function"))
