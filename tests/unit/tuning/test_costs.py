"""Estimated cycles by node."""

from __future__ import annotations

import pytest

from qglow.graph.ops.shape import Reshape
from qglow.targets.x86.isas import isa_by_name
from qglow.tuning.costs import node_cycles
from tests.unit.tuning.networks import quantized


@pytest.mark.parametrize("isa", ["avx2", "avx512vnni"])
def test_every_node_that_computes_has_a_cost(isa: str) -> None:
    result = quantized()
    for graph in (result.graph, result.source):
        cycles = node_cycles(graph, isa_by_name(isa))
        computing = {node.name for node in result.source.nodes if not isinstance(node.operator, Reshape)}
        assert set(cycles) >= computing
        assert all(cost >= 0.0 for cost in cycles.values())
        assert cycles["Conv_0"] > cycles["Gemm_0"], "it has a hundred times the multiplications"
