"""Elements at places that are computed while the model runs: GatherND, TensorScatter.

The data are read as rows, one after another; a place becomes the number of its row.
"""

from __future__ import annotations

import math

import numpy as np

from qglow.core.memory import require_more_memory
from qglow.core.types import Array, ElementType, Shape
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Mul, Sub
from qglow.graph.ops.logic import And, Compare, Whole
from qglow.graph.ops.movement import Gather, Slice
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Cast, Reshape
from qglow.importer.node import ImportNode
from qglow.numerics.places import first_places

PLACE_BYTES = 8


def gather_tuples_at(node: ImportNode, batch: int, depth: int) -> None:
    """Add a GatherND of index tuples that are no constant, [..., depth], behind `batch` common axes."""
    shape, index = node.kind().shape, node.value(1)
    leading = index.type.shape[:-1]
    counted, rest = shape[: batch + depth], shape[batch + depth :]
    strides = _strides(counted)
    places: Value | None = None
    for i in range(depth):
        starts, ends = (*(0,) * len(leading), i), (*leading, i + 1)
        column = node.emit(Slice(starts, ends, (1,) * len(ends)), index, part=f"column{i}")
        column = node.emit(Reshape(shape=leading), column, part=f"index{i}")
        row = _row(node, from_front(node, column, shape[batch + i], str(i)), strides[batch + i], str(i))
        places = row if places is None else node.emit(Add(), places, row, part=f"places{i}")
    assert places is not None  # tuples have at least one index
    axes = zip(range(batch), leading[:batch], strides[:batch], strict=True)
    firsts = first_places(len(leading), axes)
    if firsts.any():
        places = node.emit(Add(), places, node.part_constant("offsets", firsts), part="places")
    rows = node.emit(Reshape(shape=(math.prod(counted), *rest)), node.value(0), part="rows")
    node.emit(Gather(axis=0), rows, places)


def import_tensor_scatter(node: ImportNode) -> None:
    """Import TensorScatter: along an axis, from an index of each batch entry on, the update in place of x.

    Every place of the result reads the element of the update that would be written there.
    """
    shape, wanted = node.kind().shape, node.kind(1).shape
    rank = node.rank()
    axis = node.axis(node.integer("axis", -2), rank)
    mode = node.string("mode", "linear")
    node.require(mode in ("linear", "circular"), f"mode {mode}; known are linear and circular")
    size, count = shape[axis], wanted[axis] if len(wanted) == rank else 0
    node.require(
        axis > 0 and (*shape[:axis], count, *shape[axis + 1 :]) == wanted and 0 < count <= size,
        f"an update {list(wanted)} of {list(shape)} along axis {axis}",
    )
    before, behind = math.prod(shape[1:axis]), math.prod(shape[axis + 1 :])
    require_more_memory(PLACE_BYTES * shape[0] * before * size, f"node '{node.name}'")
    zero = node.part_constant("zero", np.array(0, np.int64))
    own = node.part_constant("own", np.tile(np.arange(size), (shape[0], 1)))
    if node.has_input(2):
        first = node.emit(Reshape(shape=(shape[0], 1)), node.value(2), part="first")
        own = node.emit(Sub(), own, first, part="from_first")
    if mode == "circular":
        whole = node.part_constant("size", np.array(size, np.int64))
        own = node.emit(Whole(operation="modulo"), own, whole, part="around")
    below = node.emit(
        Compare(relation="less"), own, node.part_constant("count", np.array(count, np.int64)), part="below"
    )
    written = below
    if mode == "linear":
        last = node.part_constant("last", np.array(-1, np.int64))
        written = node.emit(
            And(), below, node.emit(Compare(relation="less"), last, own, part="from"), part="in"
        )
    source = node.emit(Where(), written, own, zero, part="source")
    source = node.emit(Reshape(shape=(shape[0], 1, size)), source, part="sources")
    starts = (np.arange(shape[0] * before) * count).reshape(shape[0], before, 1)
    places = node.emit(Add(), source, node.part_constant("starts", starts), part="places")
    rows = node.emit(Reshape(shape=(shape[0] * before * count, behind)), node.value(1), part="rows")
    new = node.emit(Reshape(shape=shape), node.emit(Gather(axis=0), rows, places, part="picked"), part="new")
    along = (shape[0], *(1,) * (axis - 1), size, *(1,) * (rank - axis - 1))
    node.emit(Where(), node.emit(Reshape(shape=along), written, part="along"), new, node.value(0))


def _strides(shape: Shape) -> tuple[int, ...]:
    """Elements from one place to the next of every axis."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def from_front(node: ImportNode, index: Value, extent: int, part: str) -> Value:
    """Indices as int64, negative ones counted from the end."""
    if index.type.element is not ElementType.INT64:
        index = node.emit(Cast(to=ElementType.INT64), index, part=f"wide{part}")
    zero = node.part_constant("zero", np.array(0, np.int64))
    size = node.part_constant("extent", _number(extent, index))
    negative = node.emit(Compare(relation="less"), index, zero, part=f"negative{part}")
    turned = node.emit(Add(), index, size, part=f"turned{part}")
    return node.emit(Where(), negative, turned, index, part=f"front{part}")


def _row(node: ImportNode, index: Value, stride: int, part: str) -> Value:
    if stride == 1:
        return index
    step = node.part_constant("stride", _number(stride, index))
    return node.emit(Mul(), index, step, part=f"row{part}")


def _number(number: int, index: Value) -> Array:
    """A number beside indices: of one axis where these have some, as sizes that a call tells are."""
    return np.full((1,) * min(1, len(index.type.shape)), number, np.int64)
