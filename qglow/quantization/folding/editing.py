"""Building blocks of the folding passes: questions about an int8 value, and changes of its type."""

from __future__ import annotations

import math

from qglow.core.types import Quantization
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator

Range = tuple[float, float]


def parameters(value: Value) -> Quantization:
    """The parameters of an int8 value. Raises ValueError for a float one."""
    if value.type.quantization is None:
        raise ValueError(f"{value} is not quantized")
    return value.type.quantization


def covered(value: Value) -> Range:
    """Return the reals that an int8 value can represent. Raises ValueError if it has no single range."""
    found = value.type.real_range()
    if found is None:
        raise ValueError(f"{value} has no one range")
    return found


def contains(outer: Range, inner: Range) -> bool:
    """Whether saturating to `outer` changes nothing in `inner`."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def limits(rescale: Node) -> Range:
    """Bounds at which a Rescale saturates: the range of its result's type, narrowed by its own bounds."""
    low, high = covered(rescale.output)
    lo, hi = rescale.operator.bounds
    return max(low, lo), min(high, hi)


def narrowed(operator: Operator, low: float, high: float) -> Operator | None:
    """The operator with its bounds narrowed to [low, high] as well; None if it takes none."""
    lo, hi = operator.bounds
    return operator.bounded(max(lo, low), min(hi, high))


def only_user(graph: Graph, value: Value) -> Node | None:
    """The one node that reads the value; None if there are several or it is an output."""
    users = value.users()
    return users[0] if len(users) == 1 and not graph.is_output(value) else None


def unbounded(operator: Operator) -> bool:
    """Whether an operator's bounds are infinite."""
    return operator.bounds == (-math.inf, math.inf)


def remove_unused(graph: Graph) -> None:
    """Remove nodes whose results nobody reads; probes, which have no results, stay."""
    for node in reversed(list(graph.nodes)):
        if node.outputs and not any(v.uses or graph.is_output(v) for v in node.outputs):
            graph.remove(node)
