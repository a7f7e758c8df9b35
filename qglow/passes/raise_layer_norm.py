"""Standardization over the last axes, written out, as one LayerNormalization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Add, Div, Mul, Sub
from qglow.graph.ops.functions import PowerOf, Reciprocal, Sqrt
from qglow.graph.ops.normalization import LayerNormalization
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    change,
    enclosed,
    fuse,
    new_constant,
    operand,
    private,
    producer_of,
    remove_unread,
)
from qglow.passes.matching import is_square, orders


@dataclass(frozen=True)
class RaiseLayerNorm(RewritePass):
    """(x - mean) / sqrt(variance + epsilon), then a constant scale, then a constant bias."""

    name: ClassVar[str] = "raise-layer-norm"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Raise the quotient that ends here, or take this scale or bias into the one before."""
        if not node.output.type.is_float:
            return None
        for numerator, root, parts in _quotients(node):
            outcome = _standardized(node, graph, numerator, root, parts)
            if outcome is not None:
                return outcome
        return _vector(node, graph)


def _quotients(node: Node) -> list[tuple[Value, Value, list[Node]]]:
    """Numerator, radicand of the root, and the nodes between, for every way to write the quotient."""
    if node.operator == Div():
        root = producer_of(operand(node, 1), Sqrt, PowerOf)
        found = root is not None and (isinstance(root.operator, Sqrt) or root.operator == PowerOf(0.5))
        return [(operand(node, 0), operand(root, 0), [root])] if root is not None and found else []
    if node.operator != Mul():
        return []
    result = []
    for value, other in orders(node):
        inverse = producer_of(other, Reciprocal, PowerOf)
        if inverse is None:
            continue
        root = producer_of(operand(inverse, 0), Sqrt)
        if isinstance(inverse.operator, Reciprocal) and root is not None:
            result.append((value, operand(root, 0), [inverse, root]))
        elif inverse.operator == PowerOf(-0.5):
            result.append((value, operand(inverse, 0), [inverse]))
    return result


def _standardized(node: Node, graph: Graph, centred: Value, radicand: Value, parts: list[Node]) -> Outcome:
    sub = producer_of(centred, Sub)
    mean = None if sub is None else producer_of(operand(sub, 1), ReduceMean)
    if sub is None or mean is None or operand(mean, 0) is not operand(sub, 0):
        return None
    found = _variance(radicand, centred)
    if found is None:
        return None
    epsilon, inner = found
    dropped = [*parts, *inner, sub, mean]
    means = [part.operator for part in dropped if isinstance(part.operator, ReduceMean)]
    x = operand(sub, 0)
    rank = len(x.type.shape)
    axes = sorted(axis % rank for axis in means[0].axes)
    if means[0] != means[1] or not means[0].keepdims:
        return Refused(f"mean and variance of %{x.name} are not over the same axes, or do not keep them")
    if axes != list(range(axes[0], rank)):
        return Refused(f"mean and variance of %{x.name} are over axes {axes}, not over the last ones")
    if node.output.type != x.type:
        return Refused(f"%{x.name} is broadcast")
    refusal = enclosed(graph, dropped, node)
    if refusal is not None:
        return refusal
    ones = new_constant(graph, f"{node.output.name}.scale", np.ones(x.type.shape[axes[0] :], np.float32))
    change(node, LayerNormalization(axis=axes[0] - rank, epsilon=epsilon), [x, ones])
    for part in dropped:
        remove_unread(graph, part)
    return f"{len(dropped) + 1} nodes become LayerNormalization"


def _variance(value: Value, centred: Value) -> tuple[float, list[Node]] | None:
    """Epsilon and the nodes of epsilon + mean of the squares of `centred`."""
    add = producer_of(value, Add)
    if add is None or add.operator != Add():
        return None
    for mean_square, epsilon in orders(add):
        data, mean = epsilon.data, producer_of(mean_square, ReduceMean)
        square = None if mean is None else producer_of(operand(mean, 0), Mul, PowerOf)
        if data is None or data.size != 1 or mean is None or square is None:
            continue
        if is_square(square, centred):
            return float(data.item()), [add, mean, square]
    return None


def _vector(node: Node, graph: Graph) -> Outcome:
    """Make a constant factor the scale if that is all ones, or a constant addend the bias if it has none."""
    if node.operator not in (Mul(), Add()):
        return None
    found = next((pair for pair in orders(node) if producer_of(pair[0], LayerNormalization)), None)
    if found is None:
        return None
    value, other = found
    norm = value.producer
    assert norm is not None and isinstance(norm.operator, LayerNormalization)
    scale = operand(norm, 1)
    if len(norm.inputs) == 3 and norm.inputs[2] is not None:
        return None
    if isinstance(node.operator, Mul) and (scale.data is None or not np.all(scale.data == 1)):
        return None
    if other.data is None:
        return Refused(f"%{other.name} is not constant")
    shape = value.type.shape[norm.operator.axis % len(value.type.shape) :]
    data = _broadcast(other.data, shape)
    if data is None or node.output.type != value.type:
        return Refused(f"%{other.name} is {other.type}: it varies along axes that are not normalized")
    refusal = private(graph, value)
    if refusal is not None:
        return refusal
    name = "scale" if isinstance(node.operator, Mul) else "bias"
    vector = new_constant(graph, f"{norm.name}.{name}", data)
    inputs = [operand(norm, 0), vector] if name == "scale" else [operand(norm, 0), scale, vector]
    fuse(graph, norm, node, norm.operator, inputs)
    return f"%{other.name} becomes the {name} of LayerNormalization"


def _broadcast(data: Array, shape: tuple[int, ...]) -> Array | None:
    """`data` broadcast to `shape`; None if it varies along further leading axes."""
    extra = data.ndim - len(shape)
    if extra > 0 and data.shape[:extra] != (1,) * extra:
        return None
    trimmed = data.reshape(data.shape[max(extra, 0) :])
    return np.array(np.broadcast_to(trimmed, shape))
