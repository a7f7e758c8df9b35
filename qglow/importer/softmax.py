"""Import of Softmax and LogSoftmax. https://onnx.ai/onnx/operators/onnx__Softmax.html"""

from __future__ import annotations

import math

from qglow.graph.graph import Value
from qglow.graph.ops.shape import Reshape
from qglow.graph.ops.softmax import LogSoftmax, Softmax
from qglow.importer.node import ImportNode, ImportRule


def import_softmax(node: ImportNode, operator: type[Softmax | LogSoftmax]) -> None:
    """Import a softmax along one axis; before opset 13 along all dimensions from the axis on."""
    shape = node.kind().shape
    if node.opset >= 13:
        axis = node.axis(node.integer("axis", -1), len(shape))
        node.emit(operator(axis=axis), node.value(0))
        return
    axis = node.axis(node.integer("axis", 1), len(shape))
    if math.prod(shape[axis + 1 :]) == 1:
        node.emit(operator(axis=axis), node.value(0))
        return
    rows = (math.prod(shape[:axis]), math.prod(shape[axis:]))
    flat = node.emit(Reshape(shape=rows), node.value(0), part="rows")
    result = node.emit(operator(axis=1), flat, part="softmax")
    node.emit(Reshape(shape=shape), result)


def probabilities(node: ImportNode, scores: Value, part: str) -> Value:
    """Turn scores into shares of 1 along their last axis, as a part of a node."""
    return node.emit(Softmax(axis=-1), scores, part=part)


RULES: dict[str, ImportRule] = {
    "LogSoftmax": ImportRule(lambda node: import_softmax(node, LogSoftmax), newest=13),
    "Softmax": ImportRule(lambda node: import_softmax(node, Softmax), newest=13),
}
