"""Targets of Reshape that hold for all shapes, from those that exports for several shapes have."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import onnx

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array, Shape
from qglow.exporter.sizes import AmbiguityError, Dimensions, ReadSize, SizeNodes

COPIED, CONCLUDED = 0, -1
"""Entries of a Reshape's target: the dimension of its operand there, and what is left."""


def reshape_for_all(
    node: onnx.NodeProto,
    targets: Sequence[Array],
    operands: Sequence[Shape | None],
    work: SizeNodes,
    dimensions: Dimensions,
) -> None:
    """Let a Reshape copy dimensions of its operand, and conclude one that the others leave.

    A dimension of its operand that goes to another axis is read there, also one that is merged with constant
    ones or loses constant parts, as pixel shuffles, transposed convolutions and windows have it.
    """
    values = [target.tolist() for target in targets]
    if 0 in values[0] or len({len(target) for target in values}) > 1:
        return  # an entry of 0 would copy too
    target: list[int | None] = [
        sizes[0] if len(set(sizes)) == 1 else COPIED if _copies(operands, axis, sizes) else None
        for axis, sizes in enumerate(zip(*values, strict=True))
    ]
    open_axes = [axis for axis, size in enumerate(target) if size is None]
    read: dict[int, ReadSize] = {}
    if open_axes:
        found = {axis: _read(node.input[0], operands, values, axis) for axis in open_axes}
        read = {axis: size for axis, size in found.items() if size is not None}
        untold = [
            axis
            for axis in open_axes
            if axis not in read and not dimensions.tell([entry[axis] for entry in values])
        ]
        concluded = (untold or open_axes)[-1]
        target[concluded] = CONCLUDED
        read.pop(concluded, None)
    try:
        node.input[1] = work.list_of(node.input[1], values, target, read)
    except AmbiguityError:
        raise
    except UnsupportedError:
        return  # what computes all of it may be known
    if COPIED in target:
        kept = [attribute for attribute in node.attribute if attribute.name != "allowzero"]
        del node.attribute[:]
        node.attribute.extend(kept)


def _read(
    tensor: str, operands: Sequence[Shape | None], targets: Sequence[Sequence[int]], axis: int
) -> ReadSize | None:
    """The size in a Reshape's operand that tells an entry of its target; None where none does."""
    known = [shape for shape in operands if shape is not None]
    if len(known) < len(operands) or len({len(shape) for shape in known}) > 1:
        return None
    own = _axis_of(known, [target[axis] for target in targets])
    if own is not None:
        return ReadSize(tensor, own)
    merged = _run(known, targets, axis)
    if merged is not None:
        return ReadSize(tensor, merged[0], factor=merged[1])
    for place in range(len(known[0])):
        split = _run(targets, known, place)
        if split is not None and split[0] == axis:
            return ReadSize(tensor, place, divisor=split[1])
    return None


def _run(
    shapes: Sequence[Sequence[int]], merged: Sequence[Sequence[int]], axis: int
) -> tuple[int, int] | None:
    """The one axis that varies among consecutive ones of `shapes` that make up an axis of `merged`.

    With it comes the product of the others. None where no such axes do in all exports, or several vary.
    """
    fronts = [prod(shape[:axis]) for shape in merged]
    rank = len(shapes[0])
    for start in range(rank):
        if [prod(shape[:start]) for shape in shapes] != fronts:
            continue
        for end in range(start + 1, rank + 1):
            if [prod(shape[start:end]) for shape in shapes] == [shape[axis] for shape in merged]:
                varying = [
                    place for place in range(start, end) if len({shape[place] for shape in shapes}) > 1
                ]
                if len(varying) == 1:
                    return varying[0], prod(shapes[0][start:end]) // shapes[0][varying[0]]
    return None


def _copies(operands: Sequence[Shape | None], axis: int, sizes: Sequence[int]) -> bool:
    """Whether the operand of a Reshape has these sizes at an axis."""
    return all(
        shape is not None and axis < len(shape) and shape[axis] == size
        for shape, size in zip(operands, sizes, strict=True)
    )


def _axis_of(operands: Sequence[Shape], sizes: Sequence[int]) -> int | None:
    """The one axis of an operand that has these sizes in the exports; None for none, or several."""
    axes = [axis for axis in range(len(operands[0])) if [shape[axis] for shape in operands] == list(sizes)]
    return axes[0] if len(axes) == 1 else None
