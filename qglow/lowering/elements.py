"""Lowering of elements that are chosen one by one."""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import Array, ElementType
from qglow.graph.graph import Node, Value
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.movement import Gather, GatherElements
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Cast, Reshape
from qglow.lowering.decompose import Parts, decomposes
from qglow.numerics.places import first_places


@decomposes(GatherElements)
def decompose_gather_elements(operator: GatherElements, parts: Parts) -> list[Node]:
    """Gather from all elements in a row, by their numbers there.

    Numbers are as many as the indices, and constants where these are.
    """
    x, indices = parts.operand(0), parts.operand(1)
    shape = x.type.shape
    axis = operator.axis % len(shape)
    stride = math.prod(shape[axis + 1 :])
    extents = enumerate(indices.type.shape)
    steps = [(other, n, math.prod(shape[other + 1 :])) for other, n in extents if other != axis]
    starts = first_places(len(shape), steps)
    if indices.data is None:
        numbers = _computed_numbers(parts, indices, shape[axis], stride, starts)
    else:
        chosen = indices.data.astype(np.int64)
        places = np.where(chosen < 0, chosen + shape[axis], chosen) * stride + starts
        numbers = parts.constant("numbers", places)
    flat = parts.add("flat", Reshape(shape=(x.type.size,)), x)
    return parts.finish(Gather(axis=0), flat, numbers)


def _computed_numbers(parts: Parts, indices: Value, extent: int, stride: int, starts: Array) -> Value:
    numbers = indices
    if indices.type.element is not ElementType.INT64:
        numbers = parts.add("wide", Cast(to=ElementType.INT64), indices)
    zero, size = (parts.constant(part, np.array(n, np.int64)) for part, n in (("zero", 0), ("size", extent)))
    negative = parts.add("negative", Compare(relation="less"), numbers, zero)
    numbers = parts.add("front", Where(), negative, parts.add("turned", Add(), numbers, size), numbers)
    if stride > 1:
        numbers = parts.add("row", Mul(), numbers, parts.constant("stride", np.array(stride, np.int64)))
    return parts.add("number", Add(), numbers, parts.constant("starts", starts)) if starts.any() else numbers
