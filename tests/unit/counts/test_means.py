"""Means of int8 as sums of integers and divisions: the very integers of rule 6."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.core.types import Quantization, float_type
from qglow.counts.means import divide_sums
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import interpret
from qglow.graph.ops.elementwise import Relu
from qglow.graph.ops.reduce import ReduceMean
from qglow.numerics.reduce import mean_int8

SCALES = st.floats(2.0**-40, 2.0**40, width=32)
ZEROS = st.integers(-128, 127)


def mean_of(places: int, before: Quantization, behind: Quantization) -> Graph:
    builder = GraphBuilder("mean")
    x = builder.input("x", float_type(2, places, 3).quantized(before))
    y = builder.node(ReduceMean((1,)), x, name="y", output_types=[float_type(2, 1, 3).quantized(behind)])
    return builder.finish(y)


@settings(deadline=None)
@given(st.integers(1, 300), SCALES, ZEROS, st.floats(-3, 3), ZEROS, st.integers(0, 2**32 - 1))
def test_means_of_int8_are_those_of_the_contract(
    places: int, scale: float, zero: int, ratio: float, other: int, seed: int
) -> None:
    before = Quantization.per_tensor(scale, zero)
    behind = Quantization.per_tensor(scale * 10**ratio, other)
    graphs = [mean_of(places, before, behind), mean_of(places + 1, before, behind)]
    divide_sums(graphs)
    assert "ReduceMean" not in {node.operator.name for graph in graphs for node in graph.nodes}
    x = np.random.default_rng(seed).integers(-128, 128, (2, places, 3)).astype(np.int8)
    wanted = mean_int8(x, before, behind, (1,))
    assert np.array_equal(interpret(graphs[0], {"x": x})["y"], wanted)


def test_means_of_more_integers_than_float32_holds_stay() -> None:
    scales = Quantization.per_tensor(0.1, -128), Quantization.per_tensor(0.1, 0)
    graphs = [mean_of(places, *scales) for places in (70_000, 69_999)]
    divide_sums(graphs)
    assert [node.operator.name for node in graphs[0].nodes] == ["ReduceMean"]


def test_means_beside_other_nodes_in_other_sizes_stay() -> None:
    """Graphs of a model whose number of nodes depends on sizes are refused later, by a node's name."""
    builder = GraphBuilder("other")
    x = builder.input("x", float_type(6))
    graphs = [builder.finish(builder.node(Relu(), x, name="y")), float_mean(5)]
    divide_sums(graphs)
    assert [graph.nodes[0].operator.name for graph in graphs] == ["Relu", "ReduceMean"]


def float_mean(places: int) -> Graph:
    builder = GraphBuilder("mean")
    x = builder.input("x", float_type(2, places, 3))
    return builder.finish(builder.node(ReduceMean((1,)), x, name="y"))
