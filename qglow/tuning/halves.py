"""16-bit floats for nodes that leave int8, where they are predicted to be faster than float32.

Weights of 16 bits are half of the bytes, which is the time of a product of few rows with many weights.
Results are rounded by a loop of its own, so that for other nodes float32 is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.graph.graph import Graph, Node
from qglow.kernels.emit.target import VectorTarget
from qglow.profiling.histogram import ValueProfile
from qglow.recipe.rules import HALVES
from qglow.tuning.costs import node_cycles
from qglow.tuning.mix import Mix

_LARGEST = {"float16": float(np.finfo(np.float16).max), "bfloat16": float(np.finfo(np.float32).max)}
_ROOM = 4.0
"""How much larger than in the profile results may become, without overflow, in other data."""


@dataclass(frozen=True, slots=True)
class Half:
    """The 16-bit float type that a node is fastest in, and its estimated cycles with those of rounding."""

    element: str
    cycles: float


def faster_halves(
    graph: Graph,
    names: Sequence[str],
    made: Callable[[Mix], Graph],
    statistics: Mapping[str, ValueProfile],
    target: VectorTarget,
) -> dict[str, Half]:
    """Return the type of each of these nodes that is estimated to be faster in one than in float32.

    graph: the float graph. made: returns the graph with a mix, of which all nodes in 16-bit floats are
    looked at. statistics: by name of the value; a node without those of its result is left out, and so is one
    with weights or results that do not fit. Of equally fast types, float16 is taken, which is more exact.
    """
    fastest = {name: Half("", cycles) for name, cycles in node_cycles(graph, target).items()}
    nodes = {node.name: node for node in graph.nodes}
    for element in HALVES:
        fitting = tuple(n for n in names if n in nodes and _fits(nodes[n], element, statistics))
        if not fitting:
            continue
        cycles = node_cycles(made(Mix(**{element: fitting})), target)
        for name in fitting:
            half = Half(element, cycles.get(name, np.inf) + cycles.get(f"{name}.{element}", 0.0))
            if name in fastest and half.cycles < fastest[name].cycles:
                fastest[name] = half
    return {name: half for name, half in fastest.items() if half.element}


def _fits(node: Node, element: str, statistics: Mapping[str, ValueProfile]) -> bool:
    """Whether a node has weights that are stored in 16 bits, and nothing in it overflows there."""
    policy = node.operator.accumulate
    weights = None if policy is None else node.operand(policy.w)
    seen = statistics.get(node.outputs[0].name)
    if weights is None or weights.data is None or seen is None or not weights.data.size:
        return False
    largest = max(abs(seen.low), abs(seen.high)) * _ROOM
    return max(largest, float(np.abs(weights.data).max())) <= _LARGEST[element]
