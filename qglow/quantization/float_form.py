"""The float graph behind a graph that brings its own quantization: without rounding, with saturation."""

from __future__ import annotations

from qglow.core.types import float_type
from qglow.graph.graph import Graph, Node
from qglow.graph.ops.elementwise import Clip
from qglow.graph.ops.shape import Identity
from qglow.graph.rewriting import operand
from qglow.quantization.folding.editing import covered, narrowed, only_user


def float_form(graph: Graph) -> Graph:
    """A copy without integers: every Quantize is a Clip to the reals that its parameters cover.

    Saturation stays because models rely on it: a Relu is often left to a zero point. Values and nodes
    keep their names. Constants must be dequantized already.
    """
    result = graph.copy()
    for node in list(result.nodes):
        if node.operator.quantizes:
            _saturate(result, node)
        elif node.operator.dequantizes:
            node.operator = Identity()
    for value in result.values():
        if value.type.is_quantized and not value.is_constant:
            value.type = float_type(*value.type.shape)
    return result


def _saturate(graph: Graph, node: Node) -> None:
    """Turn a Quantize into a Clip; narrow the bounds of its producer too if nothing else reads the result."""
    x, (low, high) = operand(node), covered(node.output)
    node.operator = Clip(low, high)
    producer = x.producer
    bounded = None if producer is None else narrowed(producer.operator, low, high)
    if producer is not None and bounded is not None and only_user(graph, x) is node:
        producer.operator = bounded
