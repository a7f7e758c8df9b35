"""Borders of constants, which are operands of a concatenation where the axis that they extend is counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, constant
from qglow.graph.ops.movement import Pad
from qglow.graph.ops.shape import Concat
from qglow.numerics.quantize import quantize_by


def join_borders(graphs: Sequence[Graph]) -> None:
    """Turn Pad along one axis into Concat, where sizes decide how many places that axis has.

    graphs: the same model in several sizes, all of which are changed alike. The border then lies behind the
    live places, wherever these end. A shift of tokens by one, as in MobileBERT, is a slice and such a border.
    """
    for twins in list(zip(*(list(graph.nodes) for graph in graphs), strict=False)):
        axes = {_axis(node) for node in twins}
        axis = axes.pop()
        if axes or axis is None or len({node.operator for node in twins}) > 1:
            continue
        shapes = [node.output.type.shape for node in twins]
        if (
            len({shape[axis] for shape in shapes}) > 1
            and len({_beside(shape, axis) for shape in shapes}) == 1
        ):
            for graph, node in zip(graphs, twins, strict=True):
                _join(graph, node, axis)


def _axis(node: Node) -> int | None:
    """The only axis along which a node adds a constant; None where it does something else."""
    operator, x = node.operator, node.inputs[0] if node.inputs else None
    if not isinstance(operator, Pad) or operator.mode != "constant" or x is None:
        return None
    rank = len(operator.pads) // 2
    axes = [axis for axis in range(rank) if operator.pads[axis] or operator.pads[rank + axis]]
    alike = x.type.quantization == node.output.type.quantization
    return axes[0] if len(axes) == 1 and alike else None


def _beside(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _join(graph: Graph, node: Node, axis: int) -> None:
    operator, x = node.operator, node.inputs[0]
    assert isinstance(operator, Pad) and x is not None
    rank, parts = len(operator.pads) // 2, [x]
    for part, extent in (("before", operator.pads[axis]), ("behind", operator.pads[rank + axis])):
        if extent:
            shape = (*x.type.shape[:axis], extent, *x.type.shape[axis + 1 :])
            name = graph.unique_name(f"{node.name}__{part}")
            border = constant(name, _border(node, operator.value, shape), x.type.quantization)
            parts = [border, x] if part == "before" else [*parts, border]
    node.operator, node.inputs = Concat(axis), tuple(parts)


def _border(node: Node, value: float, shape: Sequence[int]) -> Array:
    kind = node.output.type
    if kind.quantization is not None:
        return quantize_by(np.full(shape, value, np.float32), kind.quantization)
    return np.full(shape, value).astype(kind.element.dtype)
