"""Import of what picks or replaces elements at places, most of which are known before the model runs.

https://onnx.ai/onnx/operators/ Compress, GatherElements, GatherND, ReverseSequence, Scatter,
ScatterElements, ScatterND, TensorScatter
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from qglow.core.memory import require_more_memory
from qglow.core.types import Array, ElementType, Shape
from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.movement import Gather, GatherElements
from qglow.graph.ops.selection import Max, Min
from qglow.graph.ops.shape import Identity, Reshape
from qglow.importer.computed_places import gather_tuples_at, import_tensor_scatter
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.shape import joined
from qglow.importer.written_places import write_along, write_at_tuples

INDEX_BYTES = 8
MOST_ROUNDS = 256
"""Updates of one place that a reduction may have."""
REDUCTIONS: dict[str, tuple[type[Operator], Callable[[np.dtype[Any]], float | int]]] = {
    "add": (Add, lambda dtype: 0),
    "mul": (Mul, lambda dtype: 1),
    "max": (Max, lambda dtype: -math.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)),
    "min": (Min, lambda dtype: math.inf if dtype.kind == "f" else int(np.iinfo(dtype).max)),
}
"""Operators of reductions, and what changes nothing in them."""


def import_gather_elements(node: ImportNode) -> None:
    """Import GatherElements: for every index the element at that place along an axis."""
    shape, axis = node.kind().shape, node.axis(node.integer("axis", 0), node.rank())
    require_more_memory(INDEX_BYTES * math.prod(node.kind(1).shape), f"node '{node.name}'")
    if node.value(1).is_constant:
        _indices(node, 1, shape[axis])
    node.emit(GatherElements(axis), node.value(0), node.value(1))


def import_gather_nd(node: ImportNode) -> None:
    """Import GatherND: for every index tuple what stands there."""
    shape, batch = node.kind().shape, node.integer("batch_dims", 0)
    wanted = node.kind(1).shape
    node.require(len(wanted) > 0, "the indices have no dimensions")
    depth = wanted[-1]
    node.require(
        0 <= batch < min(len(wanted), len(shape)) and 0 < depth <= len(shape) - batch,
        f"indices {list(wanted)} with batch_dims {batch} do not fit data {list(shape)}",
    )
    node.require(wanted[:batch] == shape[:batch], "indices and data differ in the batch")
    if not node.value(1).is_constant:
        gather_tuples_at(node, batch, depth)
        return
    index = node.array(1, "the indices")
    places = np.moveaxis(_in_range(node, index, shape[batch : batch + depth]), -1, 0)
    leading = np.indices(index.shape[:-1], sparse=True)[:batch]
    _pick(node, _numbered(node, shape)[(*leading, *places)])


def import_compress(node: ImportNode) -> None:
    """Import Compress: the slices, or without an axis the elements, for which the condition holds."""
    kept = np.flatnonzero(node.array(1, "the condition"))
    numbers = _numbered(node, node.kind().shape)
    if node.has("axis"):
        axis = node.axis(node.integer("axis", 0), node.rank())
        node.require(kept.max(initial=-1) < numbers.shape[axis], "the condition is longer than the axis")
        _pick(node, np.take(numbers, kept, axis))
        return
    node.require(kept.max(initial=-1) < numbers.size, "the condition is longer than the tensor")
    _pick(node, numbers.reshape(-1)[kept])


def import_reverse_sequence(node: ImportNode) -> None:
    """Import ReverseSequence of constant lengths: the first elements of every sequence in reverse."""
    time, batch = node.integer("time_axis", 0), node.integer("batch_axis", 1)
    node.require(
        sorted((time, batch)) == [0, 1] and node.rank() >= 2, f"axes {time} and {batch}; they are 0 and 1"
    )
    numbers = np.moveaxis(_numbered(node, node.kind().shape), (batch, time), (0, 1)).copy()
    lengths = node.array(1, "the lengths").reshape(-1)
    fits = lengths.size == len(numbers) and all(0 <= n <= numbers.shape[1] for n in lengths)
    node.require(fits, f"lengths {lengths.tolist()[:8]} do not fit data {list(node.kind().shape)}")
    for row, length in zip(numbers, lengths, strict=True):
        row[:length] = row[:length][::-1].copy()
    _pick(node, np.moveaxis(numbers, (0, 1), (batch, time)))


def import_scatter_elements(node: ImportNode) -> None:
    """Import ScatterElements, and Scatter before opset 11: updates at places along an axis."""
    shape, axis = node.kind().shape, node.axis(node.integer("axis", 0), node.rank())
    if not node.value(1).is_constant:
        node.require(node.kind(1).shape == node.kind(2).shape, "indices and updates differ in shape")
        write_along(node, axis, _combining(node))
        return
    index = _indices(node, 1, shape[axis])
    node.require(
        index.shape == node.kind(2).shape and index.ndim == len(shape), "indices and updates differ in shape"
    )
    numbers = _numbered(node, shape)
    fits = all(few <= many for i, (few, many) in enumerate(zip(index.shape, shape, strict=True)) if i != axis)
    node.require(fits, f"indices {list(index.shape)} are larger than data {list(shape)}")
    part = numbers[tuple(slice(None) if i == axis else slice(0, n) for i, n in enumerate(index.shape))]
    _write(node, numbers, np.take_along_axis(part, index, axis))


def import_scatter_nd(node: ImportNode) -> None:
    """Import ScatterND: updates at index tuples. Of two for one place the later one counts."""
    shape, own = node.kind().shape, node.kind(1).shape
    node.require(len(own) > 0 and own[-1] <= len(shape), "indices do not fit the data")
    depth = own[-1]
    wanted = (*own[:-1], *shape[depth:])
    node.require(node.kind(2).shape == wanted, f"updates are {node.kind(2)}; shape {list(wanted)} is needed")
    if not node.value(1).is_constant:
        write_at_tuples(node, _combining(node))
        return
    index = node.array(1, "the indices")
    numbers = _numbered(node, shape)
    places = np.moveaxis(_in_range(node, index, shape[:depth]), -1, 0)
    _write(node, numbers, numbers[tuple(places)])


def _write(node: ImportNode, numbers: Array, positions: Array) -> None:
    """Write the updates at these positions, along an axis where they are at some of its places."""
    is_partial = 0 < positions.size < numbers.size and _reduction(node) == "none"
    for part in _parts_along(positions, numbers.shape) if is_partial else ():
        found = _along_axis(part, numbers.shape)
        if found is not None:
            updates = node.value(2)
            if updates.type.shape != part.shape:
                updates = node.emit(Reshape(shape=part.shape), updates, part="apart")
            _replace_along(node, updates, *found)
            return
    _scatter(node, numbers, positions)


def _parts_along(positions: Array, shape: Shape) -> Iterator[Array]:
    """Positions as they would be some places of each axis of data of a shape."""
    whole = math.prod(shape)
    for axis, extent in enumerate(shape):
        count, left = divmod(positions.size * extent, whole)
        if not left:
            yield positions.reshape(*shape[:axis], count, *shape[axis + 1 :])


def _along_axis(positions: Array, shape: Shape) -> tuple[int, Array] | None:
    """Find the one axis along which positions are at some places alone, and these; None if there is no such.

    positions: of elements of data of a shape. Exporters write `x[..., :2] = y` as those of all its elements.
    """
    if positions.ndim != len(shape) or not positions.size:
        return None
    partial = [axis for axis, few in enumerate(positions.shape) if few != shape[axis]]
    numbers = np.arange(math.prod(shape)).reshape(shape)
    for axis in partial or range(len(shape)) if len(partial) < 2 else ():
        first = np.moveaxis(positions, axis, -1).reshape(-1, positions.shape[axis])[0]
        places = np.unravel_index(first, shape)[axis]
        if np.array_equal(numbers.take(places, axis), positions):
            return axis, places
    return None


def _replace_along(node: ImportNode, updates: Value, axis: int, places: Array) -> None:
    """Replace what is at places along an axis by the updates; other axes may have any size."""
    count = node.kind().shape[axis]
    numbers = np.arange(count)
    numbers[places] = count + np.arange(places.size)
    both = joined(node, (node.value(0), updates), "both", axis)
    node.emit(Gather(axis=axis), both, node.part_constant("places", numbers))


def _reduction(node: ImportNode) -> str:
    """The name of the node's reduction; refused where it is not known or has no such elements."""
    reduction = node.string("reduction", "none")
    known = reduction == "none" or reduction in REDUCTIONS
    node.require(known, f"reduction {reduction}; known are none, {', '.join(REDUCTIONS)}")
    fits = reduction == "none" or node.kind().element is not ElementType.BOOL
    node.require(fits, f"reduction {reduction} of {node.kind()}")
    return reduction


def _combining(node: ImportNode) -> Operator | None:
    """The operator of the node's reduction; None where updates replace what is there."""
    reduction = _reduction(node)
    return None if reduction == "none" else REDUCTIONS[reduction][0]()


def _scatter(node: ImportNode, numbers: Array, places: Array) -> None:
    """Replace the elements at these positions by the updates, or combine them as the reduction says."""
    reduction = _reduction(node)
    if reduction == "none":
        flat = numbers.reshape(-1)
        flat[places.reshape(-1)] = numbers.size + np.arange(places.size)
        _replace(node, flat.reshape(numbers.shape))
        return
    operator, neutral = REDUCTIONS[reduction]
    total, dtype = node.value(0), node.kind().element.dtype
    rounds = rounds_of(places.reshape(-1), numbers.size)
    node.require(
        len(rounds) <= MOST_ROUNDS, f"{len(rounds)} updates of one place; {MOST_ROUNDS} are supported"
    )
    rest = node.part_constant("neutral", np.array([neutral(dtype)], dtype))
    updates = joined(node, (_flat(node, 2), rest), part="updates")
    for number, chosen in enumerate(rounds):
        positions = node.part_constant("chosen", chosen.reshape(numbers.shape))
        update = node.emit(Gather(axis=0), updates, positions, part=f"update{number}")
        total = node.emit(operator(), total, update, part=f"round{number}")
    node.emit(Identity(), total)


def rounds_of(targets: Array, size: int) -> list[Array]:
    """Sources by target, in as many rounds as one target has sources, in their order.

    targets: the place that each source goes to, -1 for none. size: how many places there are. In a round
    a place without a source has the number behind the last one.
    """
    order = np.argsort(targets, kind="stable")
    order = order[targets[order] >= 0]
    places = targets[order]
    firsts = np.flatnonzero(np.diff(places, prepend=-1))
    ranks = np.arange(places.size) - np.repeat(firsts, np.diff(np.append(firsts, places.size)))
    rounds = []
    for number in range(int(ranks.max(initial=-1)) + 1):
        chosen = np.full(size, targets.size, np.int64)
        chosen[places[ranks == number]] = order[ranks == number]
        rounds.append(chosen)
    return rounds


def import_col_to_im(node: ImportNode) -> None:
    """Import Col2Im to a constant size: every pixel as the sum of the elements of blocks that lie on it."""
    image, block = (tuple(int(n) for n in node.array(i, "a size").reshape(-1)) for i in (1, 2))
    axes = len(image)
    strides, dilations = (node.integers(name, (1,) * axes) for name in ("strides", "dilations"))
    pads = node.integers("pads", (0,) * (2 * axes))
    fits = (
        len(block) == len(strides) == len(dilations) == axes == len(pads) // 2 and min(strides, default=0) > 0
    )
    node.require(
        fits and node.rank() == 3 and min(*image, *block) > 0, f"block {list(block)} of {list(image)}"
    )
    counts = [
        (image[i] + pads[i] + pads[axes + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i in range(axes)
    ]
    images, columns, length = node.kind().shape
    node.require(
        min(counts) > 0 and length == math.prod(counts) and columns % math.prod(block) == 0,
        f"{node.kind()} has no {math.prod(counts)} blocks of {list(block)}",
    )
    require_more_memory(INDEX_BYTES * math.prod(block) * length, f"node '{node.name}'")
    targets, inside = np.zeros((), np.int64), np.ones((), np.bool_)
    for i in range(axes):
        within = np.arange(block[i]).reshape(-1, *(1,) * (2 * axes - 1 - i)) * dilations[i]
        start = np.arange(counts[i]).reshape(-1, *(1,) * (axes - 1 - i)) * strides[i]
        pixel = within + start - pads[i]
        inside = inside & (pixel >= 0) & (pixel < image[i])
        targets = targets * image[i] + pixel
    rounds = rounds_of(np.where(inside, targets, -1).reshape(-1), math.prod(image))
    channels = columns // math.prod(block)
    blocks = node.emit(Reshape((images, channels, math.prod(block) * length)), node.value(0), part="blocks")
    zero = node.part_constant("zero", np.zeros((images, channels, 1), node.kind().element.dtype))
    blocks = joined(node, (blocks, zero), "padded", 2)
    total: Value = zero
    for number, chosen in enumerate(rounds):
        part = node.emit(Gather(axis=2), blocks, node.part_constant("chosen", chosen), part=f"part{number}")
        total = node.emit(Add(), total, part, part=f"sum{number}") if number else part
    node.emit(Reshape((images, channels, *image)), total)


def _indices(node: ImportNode, position: int, extent: int) -> Array:
    """Constant indices along one axis, counted from the front."""
    return _in_range(node, node.array(position, "the indices")[..., None], (extent,))[..., 0]


def _in_range(node: ImportNode, index: Array, shape: Shape) -> Array:
    """Index tuples [..., axes] counted from the front. Refuses what lies outside of `shape`."""
    extents = np.array(shape, np.int64)
    inside = (index >= -extents) & (index < extents)
    node.require(bool(inside.all()), f"an index is out of range for shape {list(shape)}")
    return np.where(index < 0, index + extents, index).astype(np.int64)


def _numbered(node: ImportNode, shape: Shape) -> Array:
    """The position of every element."""
    size = math.prod(shape)
    require_more_memory(INDEX_BYTES * size, f"node '{node.name}'")
    return np.arange(size).reshape(shape)


def _pick(node: ImportNode, positions: Array) -> None:
    """Give the elements of the data at these positions, in this shape."""
    if np.array_equal(positions.reshape(-1), np.arange(node.kind().size)):
        node.emit(Reshape(shape=positions.shape), node.value(0))  # all of them, in their order
        return
    found = _along_axis(positions, node.kind().shape)
    if found is None:
        _gather(node, _flat(node, 0), positions)
        return
    axis, places = found  # other axes may have any size
    node.emit(Gather(axis=axis), node.value(0), node.part_constant("places", places))


def _replace(node: ImportNode, positions: Array) -> None:
    """Give the elements of the data, followed by those of the updates, at these positions."""
    first = positions.size
    if positions.size == node.value(2).type.size and np.array_equal(
        positions.reshape(-1), np.arange(first, 2 * first)
    ):
        node.emit(Reshape(shape=positions.shape), node.value(2))  # the updates replace everything
        return
    _gather(node, joined(node, (_flat(node, 0), _flat(node, 2)), part="both"), positions)


def _gather(node: ImportNode, elements: Value, positions: Array) -> None:
    node.emit(Gather(axis=0), elements, node.part_constant("positions", np.asarray(positions, np.int64)))


def _flat(node: ImportNode, index: int) -> Value:
    value = node.value(index)
    return node.emit(Reshape(shape=(value.type.size,)), value, part=f"input{index}_flat")


RULES: dict[str, ImportRule] = {
    "Col2Im": ImportRule(import_col_to_im, newest=18),
    "Compress": ImportRule(import_compress, newest=28),
    "GatherElements": ImportRule(import_gather_elements, newest=13),
    "GatherND": ImportRule(import_gather_nd, newest=13),
    "ReverseSequence": ImportRule(import_reverse_sequence, newest=28),
    "Scatter": ImportRule(import_scatter_elements, newest=11),
    "ScatterElements": ImportRule(import_scatter_elements, newest=18),
    "ScatterND": ImportRule(import_scatter_nd, newest=18),
    "TensorScatter": ImportRule(import_tensor_scatter, newest=24),
}
