"""What each node costs in a compiled program, by the estimate that kernels are chosen by."""

from __future__ import annotations

from qglow.graph.graph import Graph
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import parse_kernel
from qglow.kernels.select import select_kernels
from qglow.toolchain import lower_graph


def node_cycles(graph: Graph, isa: Isa) -> dict[str, float]:
    """Estimated cycles by node of the graph; a kernel that serves several nodes is shared out evenly."""
    program = lower_graph(graph)
    select_kernels(program, isa)
    cycles: dict[str, float] = {}
    for instruction in program.code:
        if not instruction.kernel:
            continue
        cost = parse_kernel(instruction.kernel).cost(instruction, isa)
        origins = instruction.origin or (instruction.name,)
        for origin in origins:
            cycles[origin] = cycles.get(origin, 0.0) + cost / len(origins)
    return cycles
