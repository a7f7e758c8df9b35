"""Evaluation of nodes whose operands are all known."""

from __future__ import annotations

from qglow.core.types import Array
from qglow.graph.graph import Node
from qglow.graph.ops.quantize import Dequantize
from qglow.graph.ops.shape import Shape

LARGEST_RESULT = 1 << 28
"""Bytes of results above which a node is left alone where its operands have fewer: a small file can
ask for any amount."""


def evaluate_constant_node(node: Node) -> tuple[Array, ...] | None:
    """The node's results when they are known before anything runs, else None.

    Known are the results of a node whose operands are all constant and, as shapes are static, of
    every Shape. None also when there is no operand, no result, or one that `is_too_large`, and of
    a Dequantize: the integers that a model brings are what quantization wants.
    """
    if isinstance(node.operator, Dequantize):
        return None
    operands = [value for value in node.inputs if value is not None]
    if not node.outputs or is_too_large(node):
        return None
    if isinstance(node.operator, Shape):
        return node.operator.shape_of(operands[0].type)
    if not operands or any(value.data is None for value in operands):
        return None
    arrays = [None if value is None else value.data for value in node.inputs]
    return node.operator.run(arrays, node.input_types(), node.output_types())


def is_too_large(node: Node) -> bool:
    """Whether the results have more bytes than is reasonable, and more than the operands."""
    given = sum(value.type.byte_size for value in node.inputs if value is not None)
    return sum(kind.byte_size for kind in node.output_types()) > max(LARGEST_RESULT, given)
