"""Updates at places that are computed while the model runs: ScatterND, ScatterElements.

https://onnx.ai/onnx/operators/ ScatterElements, ScatterND

Indices are compared with the places of an axis, and every place reads the update that would be written there.
Axes along which updates are where they come from, as `x[arange(n), last]` has them, are not compared. Of two
updates of one place the later one counts; an index that is out of range names no place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.memory import require_more_memory
from qglow.core.types import Array, Shape
from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.logic import And, Compare
from qglow.graph.ops.movement import Gather, GatherElements, Slice
from qglow.graph.ops.reduce import ReduceMax
from qglow.graph.ops.selection import Max, Where
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.importer.computed_places import from_front
from qglow.importer.node import ImportNode, NeedsConstant
from qglow.numerics.places import first_places

PLACE_BYTES = 8
FEW_COMPARISONS = 1 << 20
MOST_COMPARISONS = 8
"""Comparisons of an index with a place for each element of the data, where there are more than few."""


@dataclass(frozen=True)
class Writing:
    """Updates and where each is written.

    counted: extents of the first axes of the data, all that indices name. shared: those of them, by number,
    that updates have at the same places. indices: of each other one the index of every update, [shared
    extents, updates]. updates: [shared extents, updates, further axes of the data].
    """

    counted: Shape
    shared: tuple[int, ...]
    indices: dict[int, Value]
    updates: Value

    @property
    def extents(self) -> Shape:
        """Extents of the axes that updates share."""
        return tuple(self.counted[axis] for axis in self.shared)

    @property
    def named(self) -> Shape:
        """Extents of the axes that indices name."""
        return tuple(self.counted[axis] for axis in self.indices)

    @property
    def count(self) -> int:
        """Updates at each place of the shared axes."""
        return self.updates.type.shape[len(self.shared)]

    @property
    def rest(self) -> Shape:
        """Further axes of the data."""
        return self.updates.type.shape[len(self.shared) + 1 :]


def write_at_tuples(node: ImportNode, operator: Operator | None) -> None:
    """Add a ScatterND of index tuples that are no constant.

    operator: combines what is there with an update; None where updates replace it.
    """
    shape, index = node.kind().shape, node.value(1)
    *leading, depth = index.type.shape
    columns = _columns(node, index)
    shared = _shared(columns, shape)
    free = [axis for axis in range(len(leading)) if axis not in shared.values()]
    order = (*shared.values(), *free)
    extents, count = tuple(shape[axis] for axis in shared), math.prod(leading[axis] for axis in free)
    indices = {
        axis: _arranged(node, _as_value(node, column, axis), order, (*extents, count), f"index{axis}")
        for axis, column in enumerate(columns)
        if axis not in shared
    }
    rest = shape[depth:]
    behind = tuple(range(len(leading), len(leading) + len(rest)))
    updates = _arranged(node, node.value(2), (*order, *behind), (*extents, count, *rest), "updates")
    _write(node, Writing(shape[:depth], tuple(shared), indices, updates), operator)


def write_along(node: ImportNode, axis: int, operator: Operator | None) -> None:
    """Add a ScatterElements, along an axis, of indices that are no constant; operator as above."""
    shape, wanted = node.kind().shape, node.kind(1).shape
    shared = tuple(i for i in range(len(shape)) if i != axis)
    fits = len(wanted) == len(shape) and all(shape[i] == wanted[i] for i in shared)
    _require(node, fits, f"{list(wanted)} indices of data {list(shape)}")
    order, extents = (*shared, axis), tuple(wanted[i] for i in (*shared, axis))
    index = _arranged(node, node.value(1), order, extents, "index")
    updates = _arranged(node, node.value(2), order, extents, "updates")
    _write(node, Writing(shape, shared, {axis: index}, updates), operator)


def _columns(node: ImportNode, index: Value) -> list[Array | Value]:
    """The indices of every axis, arrays where they are constants."""
    *leading, depth = index.type.shape
    if index.data is not None:
        return list(np.moveaxis(index.data, -1, 0))
    joined = index.producer
    if joined is not None and joined.operator.joined_axis(joined.input_types()) == len(leading):
        parts = [value for value in joined.inputs if value is not None]
        if len(parts) > 1:
            return [column for part in parts for column in _columns(node, part)]
    shape = tuple(leading)
    if depth == 1:
        return [node.emit(Reshape(shape=shape), index, part="column")]
    found: list[Array | Value] = []
    for i in range(depth):
        starts, ends = (*(0,) * len(shape), i), (*shape, i + 1)
        column = node.emit(Slice(starts, ends, (1,) * len(ends)), index, part=f"column{i}")
        found.append(node.emit(Reshape(shape=shape), column, part=f"column{i}"))
    return found


def _shared(columns: Sequence[Array | Value], shape: Shape) -> dict[int, int]:
    """Axes of the data along which each update is at its own place, with those of the updates."""
    found: dict[int, int] = {}
    for axis, column in enumerate(columns):
        if isinstance(column, Value):
            continue
        for own, extent in enumerate(column.shape):
            along = [1] * column.ndim
            along[own] = extent
            every = np.broadcast_to(np.arange(extent).reshape(along), column.shape)
            if own not in found.values() and extent == shape[axis] and np.array_equal(column, every):
                found[axis] = own
                break
    return found


def _as_value(node: ImportNode, column: Array | Value, axis: int) -> Value:
    return column if isinstance(column, Value) else node.part_constant(f"column{axis}", column)


def _arranged(node: ImportNode, value: Value, order: Sequence[int], shape: Shape, part: str) -> Value:
    """A value whose axes are exchanged and then merged or divided."""
    if tuple(order) != tuple(range(len(order))):
        value = node.emit(Transpose(perm=tuple(order)), value, part=f"{part}_turned")
    return value if value.type.shape == shape else node.emit(Reshape(shape=shape), value, part=part)


def _write(node: ImportNode, writing: Writing, operator: Operator | None) -> None:
    """Add the choice between what is there and what is written."""
    comparisons = math.prod((*writing.extents, writing.count, *writing.named))
    few = comparisons <= max(FEW_COMPARISONS, MOST_COMPARISONS * node.kind().size)
    _require(node, few, f"indices of {writing.count} updates at {list(writing.named)} places")
    require_more_memory(PLACE_BYTES * comparisons, f"node '{node.name}'")
    _require(node, operator is None or writing.count == 1, "indices of several updates that are combined")
    number, hit = _number(writing.updates), _matches(node, writing)
    if writing.count == 1:
        hit = node.emit(Reshape(shape=(*writing.extents, *writing.named)), hit, part="at")
        ones = (1,) * len(writing.indices)
        update = node.emit(
            Reshape(shape=(*writing.extents, *ones, *writing.rest)), writing.updates, part="update"
        )
    else:
        last = _last_update(node, writing, hit)
        none = node.part_constant("none", np.array(-1, np.int64))
        hit = node.emit(Compare(relation="less"), none, last, part="written")
        update = writing.updates if number is not None else _picked(node, writing, last)
    hit = _in_place(node, writing, hit, (1,) * len(writing.rest), "hit")
    data = node.value(0)
    if number is None:
        update = _in_place(node, writing, update, writing.rest, "new")
        data = _one_number(node, data, "data")
    else:
        update = node.part_constant("number", number)
        data = data if writing.rest else _one_number(node, data, "data")
    if operator is not None:
        update = node.emit(operator, node.value(0), update, part="combined")
    node.emit(Where(), hit, update, data)


def _require(node: ImportNode, condition: bool, what: str) -> None:
    """Refuse indices that are computed, unless a condition holds; constants would do."""
    if not condition:
        indices = node.value(1)
        problem = "are computed while the model runs; they must be constants"
        raise NeedsConstant(f"{what} ('{indices.name}') {problem}", indices)


def _one_number(node: ImportNode, value: Value, part: str) -> Value:
    """A constant of one number as that number, which no size changes; other values as they are."""
    number = _number(value)
    return value if number is None else node.part_constant(part, number)


def _number(value: Value) -> Array | None:
    """The number that is every element of a constant, with as many axes; None for other values."""
    if value.data is None or value.type.quantization is not None or not value.type.size:
        return None
    first = value.data.reshape(-1)[:1]
    is_one = np.array_equal(
        value.data.view(np.uint8).reshape(value.type.size, -1),
        np.broadcast_to(first.view(np.uint8), (value.type.size, first.itemsize)),
    )
    return first.reshape((1,) * value.data.ndim) if is_one else None


def _matches(node: ImportNode, writing: Writing) -> Value:
    """Whether each update goes to each place, [shared extents, updates, named extents]."""
    both: Value | None = None
    outer = (*writing.extents, writing.count)
    for number, (axis, index) in enumerate(writing.indices.items()):
        extent = writing.counted[axis]
        front = from_front(node, index, extent, str(axis))
        front = node.emit(Reshape(shape=(*outer, 1)), front, part=f"apart{axis}")
        places = node.part_constant(f"places{axis}", np.arange(extent))
        match = node.emit(Compare(relation="equal"), front, places, part=f"match{axis}")
        ones = [1] * len(writing.indices)
        ones[number] = extent
        match = node.emit(Reshape(shape=(*outer, *ones)), match, part=f"match{axis}")
        both = match if both is None else node.emit(And(), both, match, part=f"both{axis}")
    assert both is not None, "a constant has no computed index"
    return both


def _last_update(node: ImportNode, writing: Writing, matches: Value) -> Value:
    """The last update of every place, -1 for none: [shared extents, named extents]."""
    numbers = np.arange(writing.count).reshape(-1, *(1,) * len(writing.indices))
    own, none = (node.part_constant("numbers", numbers), node.part_constant("none", np.array(-1, np.int64)))
    mine = node.emit(Where(), matches, own, none, part="mine")
    return node.emit(ReduceMax((len(writing.shared),), False), mine, part="last")


def _picked(node: ImportNode, writing: Writing, last: Value) -> Value:
    """The last update of every place, any one where there is none: [shared, named, further extents]."""
    zero = node.part_constant("zero", np.array(0, np.int64))
    source = node.emit(Max(), last, zero, part="source")
    rank = len(writing.shared)
    if not writing.rest and len(writing.indices) == 1:
        return node.emit(GatherElements(rank), writing.updates, source, part="picked")
    steps = [math.prod(writing.extents[i + 1 :]) * writing.count for i in range(rank)]
    if any(extent > 1 for extent in writing.extents):
        firsts = first_places(len(source.type.shape), zip(range(rank), writing.extents, steps, strict=True))
        source = node.emit(Add(), source, node.part_constant("firsts", firsts), part="row")
    rows = (math.prod(writing.extents) * writing.count, *writing.rest)
    table = node.emit(Reshape(shape=rows), writing.updates, part="rows")
    return node.emit(Gather(axis=0), table, source, part="picked")


def _in_place(node: ImportNode, writing: Writing, value: Value, rest: Shape, part: str) -> Value:
    """A value [shared, named, further extents] with its axes in the order of the data."""
    order = (*writing.shared, *writing.indices)
    perm = tuple(order.index(axis) for axis in range(len(order)))
    turned = tuple(range(len(order), len(value.type.shape)))
    if perm != tuple(range(len(order))):
        value = node.emit(Transpose(perm=(*perm, *turned)), value, part=f"{part}_turned")
    shape = (*value.type.shape[: len(order)], *rest)
    return value if value.type.shape == shape else node.emit(Reshape(shape=shape), value, part=part)
