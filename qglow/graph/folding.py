"""Evaluation of nodes whose operands are all known."""

from __future__ import annotations

from qglow.core.memory import require_more_memory
from qglow.core.types import Array
from qglow.graph.graph import Node

_TEMPORARIES = 4
"""Bytes of temporaries that computing a result needs, for each byte of the result."""

LARGEST_RESULT = 1 << 26
"""Bytes of results above which a node is left alone where its operands have fewer: a small file can
ask for any amount."""


def evaluate_constant_node(node: Node) -> tuple[Array, ...] | None:
    """Results of a node that are known before anything runs; else None.

    Results are known if all operands are constant or, as shapes are static, if types alone determine
    them. None also without operands or results, for results that are `is_too_large`, and for a
    Dequantize, whose constant integers quantization needs, and for a node with regions, which may never end.
    Raises MemoryLimitError.
    """
    if node.operator.dequantizes or node.operator.region_names:
        return None
    operands = [value for value in node.inputs if value is not None]
    if not node.outputs or is_too_large(node):
        return None
    known = node.operator.evaluate_types(node.input_types())
    if known is not None:
        return known
    if not operands or any(value.data is None for value in operands):
        return None
    # numpy holds wider intermediate results and masks beside the results.
    size = sum(kind.byte_size for kind in node.output_types())
    require_more_memory(_TEMPORARIES * size, f"computing '{node.outputs[0].name}', which is constant,")
    arrays = [None if value is None else value.data for value in node.inputs]
    return node.operator.run(arrays, node.input_types(), node.output_types(), constants=True)


def is_too_large(node: Node) -> bool:
    """Whether the results have more bytes than is reasonable, and more than the operands."""
    given = sum(value.type.byte_size for value in node.inputs if value is not None)
    return sum(kind.byte_size for kind in node.output_types()) > max(LARGEST_RESULT, given)
