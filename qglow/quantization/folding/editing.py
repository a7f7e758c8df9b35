"""What the folding passes share: questions about an int8 value, and changes of its type."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from qglow.core.types import Quantization
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.quantize import Rescale

Range = tuple[float, float]


def parameters(value: Value) -> Quantization:
    """The parameters of an int8 value. Raises ValueError for a float one."""
    if value.type.quantization is None:
        raise ValueError(f"{value} is not quantized")
    return value.type.quantization


def covered(value: Value) -> Range:
    """The reals that an int8 value can stand for."""
    found = value.type.real_range()
    if found is None:
        raise ValueError(f"{value} has no one range")
    return found


def contains(outer: Range, inner: Range) -> bool:
    """Whether saturating to `outer` changes nothing in `inner`."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def limits(rescale: Node) -> Range:
    """Where a Rescale saturates: the range of its result's type, narrowed by its bounds."""
    assert isinstance(rescale.operator, Rescale)
    low, high = covered(rescale.output)
    return max(low, rescale.operator.lo), min(high, rescale.operator.hi)


def with_bounds(operator: Any, low: float, high: float) -> Any:
    """The operator with its bounds narrowed to [low, high] as well."""
    return dataclasses.replace(operator, lo=max(operator.lo, low), hi=min(operator.hi, high))


def has_bounds(operator: Any) -> bool:
    """Whether an operator has fused bounds."""
    return hasattr(operator, "lo") and hasattr(operator, "hi")


def only_user(graph: Graph, value: Value) -> Node | None:
    """The one node that reads the value; None where there are several or it is an output."""
    users = value.users()
    return users[0] if len(users) == 1 and not graph.is_output(value) else None


def unbounded(operator: Any) -> bool:
    """Whether an operator's bounds are infinite."""
    return bool(math.isinf(operator.lo) and math.isinf(operator.hi))


def remove_unused(graph: Graph) -> None:
    """Remove nodes whose results nobody reads; probes, which have no results, stay."""
    for node in reversed(list(graph.nodes)):
        if node.outputs and not any(v.uses or graph.is_output(v) for v in node.outputs):
            graph.remove(node)
