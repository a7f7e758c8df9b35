"""From an int8 model and calibration samples to the order in which its nodes leave int8."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qglow.graph.graph import Graph
from qglow.kernels.isa import Isa
from qglow.tuning.costs import node_cycles
from qglow.tuning.effort import multiply_adds
from qglow.tuning.mix import Precision
from qglow.tuning.order import NO_LIMITS, Limits, Step, order_nodes
from qglow.tuning.sensitivity import Sensitivity

MOST_RUNS = 32
FEWEST_RUNS = 2
_MULTIPLY_ADDS = 6e11
"""That a prediction may take, about."""


def runs_for(graph: Graph, available: int) -> int:
    """On how many of the available inputs to predict: the same number on every machine."""
    places = 2 * len(graph.nodes)
    affordable = math.floor(_MULTIPLY_ADDS / max(multiply_adds(graph) * places, 1.0))
    return min(available, MOST_RUNS, max(FEWEST_RUNS, affordable))


def ordered_steps(
    model: Graph,
    float_graph: Graph,
    int8_graph: Graph,
    int16_graph: Graph,
    found: Sensitivity,
    isa: Isa,
    *,
    may_float: bool,
    limits: Limits = NO_LIMITS,
) -> Sequence[Step]:
    """The order by estimated times on an instruction set.

    model: what was quantized. float_graph: what the int8 graph stands for. int16_graph: with all nodes in
    int16 that have that form. may_float: whether float is tried too.
    """
    graphs = {Precision.INT8: int8_graph, Precision.INT16: int16_graph}
    if may_float:
        graphs[Precision.FLOAT] = float_graph
    cycles = {precision: node_cycles(graph, isa) for precision, graph in graphs.items()}
    return order_nodes(model, int8_graph, found, cycles, limits)
