"""Places that a model computes, such as where it looks into an image, stay float back to the products.

A place is rounded to whole numbers, which choose what is fetched, and what is left of it weighs what lies on
both sides. A step of int8 over all places of an image is a part of a pixel, or several pixels of a large one,
and all that is fetched moves by it. Differences of places, such as an optical flow, would have both errors.

Products of few terms are no layers: they turn and bend places (homographies, splines), and cost
hardly anything. They stay float too, with what gives their operands.
"""

from __future__ import annotations

from qglow.core.types import ElementType
from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.placement import FloatReasons, data_operands, handles_reals
from qglow.quantization.weights import summed_terms

FEW_TERMS = 32
"""Terms up to which sums, those of products of matrices among them, are taken to move places."""
_WHOLE_NUMBERS = (ElementType.INT32, ElementType.INT64)


def keep_places_float(graph: Graph, reasons: FloatReasons) -> None:
    """Add to `reasons` the nodes that compute places, and light ones that add to them or subtract them."""
    numbers: set[Value] = set()
    places: set[Value] = set()
    for node in reversed(graph.nodes):
        if _chooses(node):
            numbers.update(value for value in node.inputs[1:] if value is not None and _is_whole(value))
        elif not numbers.isdisjoint(node.outputs):
            operands = [value for value in node.inputs if value is not None]
            numbers.update(filter(_is_whole, operands))
            shape = node.output.type.shape  # each number is that of one place
            places.update(value for value in operands if value.type.is_float and value.type.shape == shape)
        elif not places.isdisjoint(node.outputs) and _computes(node):
            places.update(_computed(node))
            _keep(node, node.output, reasons)
    for node in graph.nodes:
        place = next((value for value in _computed(node) if value in places), None)
        if place is not None and node.operator.additive and node.output.type.size <= place.type.size:
            _keep(node, place, reasons)


def _keep(node: Node, place: Value, reasons: FloatReasons) -> None:
    if handles_reals(node):
        why = "holds places, and rounding would move what is fetched there"
        reasons.setdefault(node, f"'{place.name}' {why}")


def _chooses(node: Node) -> bool:
    """Whether integers, which a node is given beside its data, choose elements of these."""
    operands = [value for value in node.inputs if value is not None]
    is_elementwise = node.operator.elementwise or not node.operator.is_light
    return not is_elementwise and operands[0].type.is_float and any(map(_is_whole, operands[1:]))


def _computes(node: Node) -> bool:
    """Whether a node computes elements of others, one by one, as they are moved, or by sums of few terms."""
    terms = summed_terms(node)
    if node.operator.reduces:
        terms = max(
            (value.type.size // max(node.output.type.size, 1) for value in _computed(node)), default=0
        )
    elif node.operator.is_light or node.operator.elementwise:
        return True
    return 0 < terms <= FEW_TERMS


def _computed(node: Node) -> list[Value]:
    operands = (node.inputs[index] for index in data_operands(node) if index < len(node.inputs))
    return [value for value in operands if value is not None and value.data is None and value.type.is_float]


def _is_whole(value: Value) -> bool:
    return value.data is None and value.type.element in _WHOLE_NUMBERS
