"""Prediction of the order in which nodes of an int8 model leave int8, from calibration samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from qglow.graph.graph import Graph
from qglow.kernels.emit.target import VectorTarget
from qglow.tuning.costs import multiply_adds, node_cycles, placed_nodes
from qglow.tuning.halves import Half
from qglow.tuning.mix import Precision
from qglow.tuning.order import NO_LIMITS, OrderLimits, Promotion, order_nodes
from qglow.tuning.sensitivity import Sensitivity

MOST_RUNS = 32
FEWEST_RUNS = 2
_MULTIPLY_ADDS = 6e11
"""Multiplications that a prediction may take, approximately."""


def runs_for(graph: Graph, available: int) -> int:
    """Number of the available inputs to predict on: the same on every machine."""
    places = 2 * sum(1 for _ in placed_nodes(graph))
    affordable = math.floor(_MULTIPLY_ADDS / max(multiply_adds(graph) * places, 1.0))
    return min(available, MOST_RUNS, max(FEWEST_RUNS, affordable))


def ordered_steps(
    model: Graph,
    float_graph: Graph,
    int8_graph: Graph,
    int16_graph: Graph,
    found: Sensitivity,
    target: VectorTarget,
    *,
    may_float: bool,
    limits: OrderLimits = NO_LIMITS,
    halves: Mapping[str, Half] = MappingProxyType({}),
) -> Sequence[Promotion]:
    """Return the steps of `order_nodes` in their order, by estimated cycles on an instruction set.

    model: the graph that was quantized. float_graph: the one that the int8 graph stands for. int16_graph:
    with all nodes in int16 that have an int16 form. may_float: whether nodes may become float too; those of
    `halves` become 16-bit floats then.
    """
    graphs = {Precision.INT8: int8_graph, Precision.INT16: int16_graph}
    if may_float:
        graphs[Precision.FLOAT] = float_graph
    cycles = {precision: node_cycles(graph, target) for precision, graph in graphs.items()}
    if may_float:
        cycles[Precision.FLOAT] |= {name: half.cycles for name, half in halves.items()}
    elements = {name: half.element for name, half in halves.items()}
    return order_nodes(model, int8_graph, found, cycles, limits, elements)
