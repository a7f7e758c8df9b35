"""From an int8 model and calibration samples to the order in which its nodes are given up to float."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qglow.graph.graph import Graph
from qglow.kernels.isa import Isa
from qglow.tuning.costs import node_cycles
from qglow.tuning.effort import multiply_adds
from qglow.tuning.order import Step, order_nodes
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


def ordered_steps(float_graph: Graph, int8_graph: Graph, found: Sensitivity, isa: Isa) -> Sequence[Step]:
    """The order by estimated times on an instruction set."""
    cycles = (node_cycles(graph, isa) for graph in (int8_graph, float_graph))
    return order_nodes(float_graph, int8_graph, found, *cycles)
