"""Import of values that shapes and numbers determine, and of what chooses by place.

https://onnx.ai/onnx/operators/ EyeLike, Hardmax, NonZero, OneHot, Range, Size, Trilu, Unique
"""

from __future__ import annotations

import math

import numpy as np

from qglow.core.memory import require_more_memory
from qglow.core.types import ElementType
from qglow.graph.graph import Value
from qglow.graph.ops.logic import Compare, Or
from qglow.graph.ops.ranking import ArgMax
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Cast, Reshape
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.tensors import ELEMENTS, element_name

EQUAL = Compare(relation="equal")
PLACE_BYTES = 8


def import_range(node: ImportNode) -> None:
    """Import Range of constants: start, start + delta, ... before limit."""
    start, limit, delta = (
        node.array(index, what).reshape(())
        for index, what in enumerate(("the start", "the limit", "the step"))
    )
    node.require(bool(delta != 0), "the step is 0")
    steps = float(limit - start) / float(delta)
    node.require(math.isfinite(steps), "the start, the limit or the step is no finite number")
    count = max(math.ceil(steps), 0)
    _require_memory(node, count * start.itemsize)
    node.constant((start + np.arange(count) * delta).astype(start.dtype))


def import_size(node: ImportNode) -> None:
    """Import Size as a constant: the number of elements."""
    node.constant(np.array(node.kind().size, np.int64))


def import_eye_like(node: ImportNode) -> None:
    """Import EyeLike as a constant: ones on a diagonal of the shape of x."""
    x = node.kind()
    node.require(len(x.shape) == 2, f"input is {x}; it must be a matrix")
    element = x.element
    if node.has("dtype"):
        number = node.integer("dtype", 0)
        node.require(number in ELEMENTS, f"a result of {element_name(number)}")
        element = ELEMENTS[number]
    _require_memory(node, x.size * element.size)
    rows, columns = x.shape
    node.constant(np.eye(rows, columns, node.integer("k", 0), dtype=element.dtype))


def import_trilu(node: ImportNode) -> None:
    """Import Trilu: the triangle on one side of a diagonal, zeros on the other."""
    x = node.value(0)
    node.require(len(x.type.shape) >= 2, f"input is {x.type}; it needs two dimensions or more")
    diagonal = int(node.scalar(1, "the diagonal", 0))
    keep = np.triu if node.integer("upper", 1) else np.tril
    _require_memory(node, math.prod(x.type.shape[-2:]))
    kept = keep(np.ones(x.type.shape[-2:], np.bool_), diagonal)
    zero = node.part_constant("zero", np.zeros((), x.type.element.dtype))
    node.emit(Where(), node.part_constant("kept", kept), x, zero)


def import_one_hot(node: ImportNode) -> None:
    """Import OneHot: one value at the place that an index names along a new axis, another elsewhere.

    Negative indices count from the end; one that is out of range names no place.
    """
    indices, values = node.value(0), node.array(2, "the values for off and on")
    depth = int(node.scalar(1, "the number of places", 0))
    node.require(depth > 0, f"{depth} places")
    node.require(values.size == 2, f"{values.size} values; they are those for off and on")
    _require_memory(node, PLACE_BYTES * depth)
    axis = node.axis(node.integer("axis", -1), node.rank() + 1)
    shape = (*indices.type.shape[:axis], 1, *indices.type.shape[axis:])
    if indices.type.element is not ElementType.INT64:
        indices = node.emit(Cast(to=ElementType.INT64), indices, part="indices")
    indices = node.emit(Reshape(shape=shape), indices, part="apart")
    named = [_at_place(node, indices, axis, first, depth) for first in (0, -depth)]
    off, on = (node.part_constant(part, v) for part, v in zip(("off", "on"), values.reshape(2), strict=True))
    node.emit(Where(), node.emit(Or(), *named, part="named"), on, off)


def import_hardmax(node: ImportNode) -> None:
    """Import Hardmax: 1 at the first largest element along an axis, else 0."""
    x = node.value(0)
    node.require(x.type.is_float, f"input is {x.type}; only float is supported")
    axis = node.axis(node.integer("axis", -1 if node.opset >= 13 else 1), node.rank())
    node.require(
        node.opset >= 13 or axis == node.rank() - 1, f"axis {axis} before opset 13; the last one is supported"
    )
    place = node.emit(ArgMax(axis, True), x, part="place")
    found = _at_place(node, place, axis, 0, x.type.shape[axis])
    node.emit(Cast(to=x.type.element), found)


def import_non_zero(node: ImportNode) -> None:
    """Import NonZero of a constant: the indices of its elements that are not 0."""
    data = node.array(0, "the tensor, whose content decides the shape of the result,")
    node.require(data.ndim > 0, "a tensor without dimensions")
    node.constant(np.array(np.nonzero(data), np.int64))


def import_unique(node: ImportNode) -> None:
    """Import Unique of a constant: its different elements or slices, where each is, and how often."""
    data = node.array(0, "the tensor, whose content decides the shape of the results,")
    axis = node.axis(node.integer("axis", 0), node.rank()) if node.has("axis") else None
    found, firsts, inverse, counts = np.unique(data, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not node.integer("sorted", 1):
        order = np.argsort(firsts)
        found, firsts, counts = np.take(found, order, axis or 0), firsts[order], counts[order]
        inverse = np.argsort(order)[inverse]
    results = (found, *(np.asarray(array, np.int64) for array in (firsts, inverse, counts)))
    for number, array in enumerate(results[: len(node.proto.output)]):
        if node.proto.output[number]:
            node.constant(array, output=number)


def _at_place(node: ImportNode, indices: Value, axis: int, first: int, count: int) -> Value:
    """Whether an index is first, first + 1, ... along an axis on which indices have one element."""
    shape = [1] * len(indices.type.shape)
    shape[axis] = count
    part = "places" if first == 0 else "places_from_end"
    places = node.part_constant(part, np.arange(first, first + count).reshape(shape))
    return node.emit(EQUAL, indices, places, part=f"at_{part}")


def _require_memory(node: ImportNode, size: int) -> None:
    require_more_memory(size, f"node '{node.name}'")


RULES: dict[str, ImportRule] = {
    "EyeLike": ImportRule(import_eye_like, newest=22),
    "Hardmax": ImportRule(import_hardmax, newest=13),
    "NonZero": ImportRule(import_non_zero, newest=13),
    "OneHot": ImportRule(import_one_hot, newest=28),
    "Range": ImportRule(import_range, newest=27),
    "Size": ImportRule(import_size, newest=25),
    "Trilu": ImportRule(import_trilu, newest=14),
    "Unique": ImportRule(import_unique, newest=28),
}
