"""Data movement. Renaming axes and reshaping dense memory cost nothing."""

from __future__ import annotations

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array, Shape, TensorType
from qglow.graph.graph import Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops import movement
from qglow.graph.ops import shape as graph
from qglow.instructions.ops.memory import Copy, Splat
from qglow.instructions.ops.movement import Broadcast, Extract, Gather, Insert, Transpose
from qglow.instructions.program import Buffer
from qglow.lowering.context import Lowering, Order, natural, permuted
from qglow.lowering.decompose import Parts, decomposes
from qglow.lowering.elementwise import common_order
from qglow.lowering.layout import groups, joined_order, reshaped_order, settled
from qglow.lowering.rules import lowers


@lowers(graph.Reshape)
def lower_reshape(lowering: Lowering, node: Node, operator: graph.Reshape) -> None:
    """Lower to a view, after a transposition if axes that the reshape merges are not adjacent in memory."""
    x = node.inputs[0]
    assert x is not None
    shape = x.type.shape
    if lowering.graph.is_output(node.output) or not x.type.size:
        _copy(lowering, node, lowering.read(x, natural(shape)))
        return
    parts = groups(shape, node.output.type.shape)
    lies = lowering.order(x)
    wanted = joined_order(shape, lies, parts)
    # Orders that differ in axes of size 1 alone describe the same memory: nothing is transposed.
    unmoved = [a for a in wanted if shape[a] != 1] == [a for a in lies if shape[a] != 1]
    source = lowering.read(x, lies if unmoved else wanted)
    order = settled(node.output.type.shape, reshaped_order(shape, wanted, parts))
    lowering.alias(node.output, source, order, permuted(node.output.type, order))


@lowers(graph.Identity)
def lower_identity(lowering: Lowering, node: Node, operator: graph.Identity) -> None:
    """Share the buffer, or copy it if the value is an output of the graph."""
    x = node.inputs[0]
    assert x is not None
    if lowering.graph.is_output(node.output):
        _copy(lowering, node, lowering.read(x, natural(x.type.shape)))
        return
    lowering.rename(node.output, x, lowering.order(x))


@lowers(graph.Transpose)
def lower_transpose(lowering: Lowering, node: Node, operator: graph.Transpose) -> None:
    """Share the buffer and note its new axis order; a reader that needs another order transposes it."""
    x = node.inputs[0]
    assert x is not None
    order = tuple(operator.perm.index(axis) for axis in lowering.order(x))
    if _are_columns(x) and not lowering.graph.is_output(node.output):
        _rows_of_columns(lowering, node, x, operator.perm)
        return
    lowering.rename(node.output, x, order)


def _are_columns(x: Value) -> bool:
    """Whether a value is made of columns of a constant matrix, whose rows all that follows computes with."""
    found = None if x.producer is None else x.producer.operator
    table = None if x.producer is None else x.producer.inputs[0]
    if not isinstance(found, movement.Gather) or table is None or table.data is None:
        return False
    return found.axis == 1 and table.data.ndim == 2


def _rows_of_columns(lowering: Lowering, node: Node, x: Value, perm: Order) -> None:
    """Lower to one transposition, or to none where there is one column."""
    lies = lowering.order(x)
    unmoved = [a for a in perm if x.type.shape[a] != 1] == [a for a in lies if x.type.shape[a] != 1]
    source, order = lowering.read(x, lies if unmoved else perm), natural(node.output.type.shape)
    lowering.alias(node.output, source, order, permuted(node.output.type, order))


@lowers(graph.ChannelShuffle)
def lower_channel_shuffle(lowering: Lowering, node: Node, operator: graph.ChannelShuffle) -> None:
    """Lower to one transposition of the channels viewed as [groups, members], in any axis order."""
    x = node.inputs[0]
    assert x is not None
    source, order = lowering.read(x), lowering.order(x)
    dest = lowering.write(node.output, order)
    place, groups = order.index(1), operator.groups
    before, after = dest.type.shape[:place], dest.type.shape[place + 1 :]
    members = dest.type.shape[place] // groups
    apart = lowering.view(
        f"{dest.name}.groups", source, x.type.with_shape((*before, groups, members, *after))
    )
    swapped = dest.type.with_shape((*before, members, groups, *after))
    perm = list(range(len(swapped.shape)))
    perm[place], perm[place + 1] = place + 1, place
    seen = lowering.view(f"{dest.name}.swapped", dest, swapped)
    lowering.emit(Transpose(perm=tuple(perm)), seen, apart)


@lowers(graph.Concat)
def lower_concat(lowering: Lowering, node: Node, operator: graph.Concat) -> None:
    """Lower to an insert per operand; later passes let producers write there directly."""
    shape = node.output.type.shape
    values = [v for v in node.inputs if v is not None]
    order = common_order(lowering, values, shape)
    axis = order.index(operator.axis % len(shape))
    sources = [lowering.read(v, order) for v in values]
    dest = lowering.write(node.output, order)
    start = 0
    for index, source in enumerate(sources):
        offsets = tuple(start if a == axis else 0 for a in range(len(shape)))
        lowering.emit(Insert(offsets=offsets), dest, source, suffix=f".insert{index}")
        start += source.type.shape[axis]


def joined(axis: int) -> Operator:
    """The operator that puts operands one after the other along an axis."""
    return graph.Concat(axis=axis)


def part(shape: Shape, axis: int, begin: int, end: int) -> Operator:
    """The operator that takes the places from `begin` to below `end` of an axis of a tensor."""
    starts = tuple(begin if a == axis else 0 for a in range(len(shape)))
    ends = tuple(end if a == axis else extent for a, extent in enumerate(shape))
    return movement.Slice(starts, ends, (1,) * len(shape))


@lowers(movement.Slice)
def lower_slice(lowering: Lowering, node: Node, operator: movement.Slice) -> None:
    """Lower to one extract."""
    x = node.inputs[0]
    assert x is not None
    source, order = lowering.read(x), lowering.order(x)
    dest = lowering.write(node.output, order)
    offsets, steps = (_reorder(part, order) for part in (operator.starts, operator.steps))
    lowering.emit(Extract(offsets=offsets, steps=steps), dest, source)


@lowers(movement.Pad)
def lower_pad(lowering: Lowering, node: Node, operator: movement.Pad) -> None:
    """Lower to a splat of the padding value, then an insert of the data."""
    x = node.inputs[0]
    assert x is not None
    source, order = lowering.read(x), lowering.order(x)
    dest = lowering.write(node.output, order)
    offsets = _reorder(operator.pads[: len(order)], order)
    lowering.emit(Splat(value=operator.value), dest, suffix=".fill")
    lowering.emit(Insert(offsets=offsets), dest, source)


@lowers(movement.Gather)
def lower_gather(lowering: Lowering, node: Node, operator: movement.Gather) -> None:
    """Lower to one gather by a vector of indices; the result is reshaped for indices of another rank."""
    x, indices = node.inputs
    assert x is not None and indices is not None
    if indices.data is not None and indices.type.shape == ():
        _choose(lowering, node, x, operator.axis % len(x.type.shape), int(indices.data))
        return
    rank, count = len(x.type.shape), indices.type.size
    axis = operator.axis % rank
    is_vector = len(indices.type.shape) == 1
    order = lowering.order(x) if is_vector else natural(x.type.shape)
    source = lowering.read(x, order)
    chosen = _vector(lowering, node, indices)
    if is_vector:
        dest = lowering.write(node.output, order)
        lowering.emit(Gather(axis=order.index(axis)), dest, source, chosen)
        return
    flat = x.type.with_shape((*x.type.shape[:axis], count, *x.type.shape[axis + 1 :]))
    dest = lowering.allocate(f"{node.output.name}.flat", flat)
    lowering.emit(Gather(axis=axis), dest, source, chosen)
    result = natural(node.output.type.shape)
    if lowering.graph.is_output(node.output):
        _copy(lowering, node, dest)
        return
    lowering.alias(node.output, dest, result, node.output.type)


def _choose(lowering: Lowering, node: Node, x: Value, axis: int, index: int) -> None:
    """Lower a gather by one constant index to an extract from the axis merged with the next one in memory.

    An innermost axis is moved outwards first, so that the extracted part consists of contiguous runs.
    Raises UnsupportedError for an index that is out of range.
    """
    shape = x.type.shape
    if not -shape[axis] <= index < shape[axis]:
        raise UnsupportedError(f"node '{node.name}' (Gather): index {index} is out of range for {x.type}")
    order, rest = _part_orders(lowering.order(x), shape, axis)
    place = order.index(axis)
    source = lowering.read(x, order)
    dest = lowering.write(node.output, rest)
    run = source.type.shape[place + 1] if place + 1 < len(order) else 1
    merged = (*source.type.shape[:place], shape[axis] * run, *source.type.shape[place + 2 :])
    seen = lowering.view(f"{node.output.name}.source", source, source.type.with_shape(merged))
    kind = dest.type.with_shape((*dest.type.shape[:place], run, *dest.type.shape[place + 1 :]))
    part = dest if dest.type.shape == kind.shape else lowering.view(f"{dest.name}.row", dest, kind)
    start = index % shape[axis] * run
    offsets = tuple(start if position == place else 0 for position in range(len(merged)))
    lowering.emit(Extract(offsets=offsets), part, seen)


def _part_orders(lies: Order, shape: Shape, axis: int) -> tuple[Order, Order]:
    """Axis orders of x, with another axis right after `axis`, and of the result, which lacks `axis`."""
    place = lies.index(axis)
    behind = [a for a in lies[place + 1 :] if shape[a] != 1]
    before = [a for a in lies[:place] if shape[a] != 1]
    result = tuple(n for a, n in enumerate(shape) if a != axis)
    rest = settled(result, tuple(a - (a > axis) for a in lies if a != axis))
    outer = [a + (a >= axis) for a in rest]
    run = behind[0] if behind else before[-1] if before else None
    at = len(outer) if run is None else outer.index(run)
    return (*outer[:at], axis, *outer[at:]), rest


@lowers(movement.Expand)
def lower_expand(lowering: Lowering, node: Node, operator: movement.Expand) -> None:
    """Lower to one broadcast of x with as many axes as the result."""
    x = node.inputs[0]
    assert x is not None
    shape = node.output.type.shape
    if len(x.type.shape) == len(shape):
        order = lowering.order(x)
        source = lowering.read(x, order)
    else:
        order = natural(shape)
        kind = x.type.with_shape((*(1,) * (len(shape) - len(x.type.shape)), *x.type.shape))
        source = _seen(lowering, f"{node.output.name}.source", x, kind)
    lowering.emit(Broadcast(), lowering.write(node.output, order), source)


def _vector(lowering: Lowering, node: Node, indices: Value) -> Buffer:
    kind = indices.type.with_shape((indices.type.size,))
    return _seen(lowering, f"{node.output.name}.indices", indices, kind)


def _seen(lowering: Lowering, name: str, value: Value, kind: TensorType) -> Buffer:
    """A value in natural axis order, viewed in the shape of `kind`."""
    if value.type.shape == kind.shape:
        return lowering.read(value, natural(kind.shape))
    if value.data is not None:
        return lowering.constant(name, value.data.reshape(kind.shape), kind)
    return lowering.view(name, lowering.read(value, natural(value.type.shape)), kind)


def _copy(lowering: Lowering, node: Node, source: Buffer) -> None:
    dest = lowering.write(node.output)
    kind = permuted(node.output.type, natural(node.output.type.shape))
    same = source.type.shape == kind.shape
    seen = source if same else lowering.view(f"{node.output.name}.reshaped", source, kind)
    lowering.emit(Copy(), dest, seen)


def _reorder(numbers: tuple[int, ...], order: Order) -> tuple[int, ...]:
    return tuple(numbers[axis] for axis in order)


@decomposes(movement.Pad)
def decompose_pad(operator: movement.Pad, parts: Parts) -> list[Node]:
    """Decompose modes that repeat elements into gathers."""
    x = parts.operand()
    if operator.mode == "constant":
        return parts.finish(operator, x)
    return gathers(parts, x, operator.indices(x.type.shape))


def gathers(parts: Parts, x: Value, steps: list[tuple[int, Array]]) -> list[Node]:
    """Decompose into one gather of x for each (axis, indices) of `steps`; without any, an identity."""
    for axis, indices in steps[:-1]:
        chosen = parts.constant(f"indices{axis}", indices.astype(np.int32))
        x = parts.add(f"axis{axis}", movement.Gather(axis=axis), x, chosen)
    if not steps:
        return parts.finish(graph.Identity(), x)
    axis, indices = steps[-1]
    return parts.finish(
        movement.Gather(axis=axis), x, parts.constant(f"indices{axis}", indices.astype(np.int32))
    )


@decomposes(movement.Gather)
def decompose_gather(operator: movement.Gather, parts: Parts) -> list[Node]:
    """Turn a gather by a constant vector of one index into a slice.

    Raises UnsupportedError for an index that is out of range.
    """
    x, indices = parts.operand(0), parts.operand(1)
    if indices.data is None or indices.data.shape != (1,):
        return parts.finish(operator, x, indices)
    axis, shape = operator.axis % len(x.type.shape), x.type.shape
    index = int(indices.data[0])
    if not -shape[axis] <= index < shape[axis]:
        name = parts.node.name
        raise UnsupportedError(f"node '{name}' (Gather): index {index} is out of range for {x.type}")
    starts, ends = [0] * len(shape), list(shape)
    starts[axis], ends[axis] = index % shape[axis], index % shape[axis] + 1
    return parts.finish(movement.Slice(tuple(starts), tuple(ends), (1,) * len(shape)), x)
