"""Nodes that nothing imports."""

from __future__ import annotations

from onnx import NodeProto

from qglow.importer.control import is_control
from qglow.importer.loading import ModelFile
from qglow.importer.naming import operator_name, shown_name
from qglow.importer.node import CannotImport
from qglow.importer.refusal import Refusal
from qglow.importer.rules import find_rule


def unsupported_operators(model: ModelFile) -> list[Refusal]:
    """Refusals of the nodes whose operator nothing imports, whatever the shapes."""
    problems = []
    for index, proto in enumerate(model.nodes):
        if is_control(proto):
            continue  # constants, which may depend on shapes, decide
        try:
            find_rule(proto.domain, proto.op_type, model.opset)
        except CannotImport as refusal:
            problems.append(refused_node(index, proto, model.opset, str(refusal)))
    return problems


def refused_node(index: int, proto: NodeProto, opset: int, reason: str) -> Refusal:
    """The refusal of a node."""
    return Refusal(f"node '{shown_name(index, proto)}'", f"({operator_name(proto)}, opset {opset})", reason)
