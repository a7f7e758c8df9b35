"""Factors of channels that follow from sizes, as nodes that compute them: the bits of an Affine."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.core.types import Array, float_type
from qglow.counts.factors import compute_factors
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, constant
from qglow.graph.interpreter import interpret
from qglow.graph.ops.elementwise import Div, Mul
from qglow.passes import canonicalize

SIZES = 16, 15, 8
FACTORS = st.floats(2.0**-20, 2.0**20, width=32)
SHAPES = st.sampled_from([(3, 5), (2, 4, 3, 2)])


def scaled(size: int, shape: tuple[int, ...], factor: float) -> Graph:
    """x * n / (n - 1) * factor, with numbers called after the size."""
    builder = GraphBuilder("scaled")
    x = builder.input("x", float_type(*shape))
    numbers = {"n": size, "fewer": size - 1, "factor": factor}
    parts = {name: builder.constant(name, np.array(n, np.float32)) for name, n in numbers.items()}
    more = builder.node(Mul(), x, parts["n"], name="more")
    variance = builder.node(Div(), more, parts["fewer"], name="variance")
    return builder.finish(builder.node(Mul(), variance, parts["factor"], name="y"))


def names_of(graph: Graph) -> set[str]:
    return {node.operator.name for node in graph.nodes}


@settings(deadline=None)
@given(SHAPES, FACTORS, st.integers(0, 2**32 - 1))
def test_computed_factors_have_the_bits_of_constants(
    shape: tuple[int, ...], factor: float, seed: int
) -> None:
    graphs = [canonicalize(scaled(size, shape, factor)) for size in SIZES]
    assert names_of(graphs[0]) == {"Affine"}
    x: Array = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    wanted = [interpret(graph, {"x": x})["y"] for graph in graphs]
    copies = [graph.copy() for graph in graphs]
    compute_factors(copies)
    for graph, array in zip(copies, wanted, strict=True):
        assert "Affine" not in names_of(graph)
        assert {"n", "fewer", "factor"} <= {value.name for value in graph.constants()}
        assert interpret(graph, {"x": x})["y"].tobytes() == array.tobytes()


def test_factors_of_all_sizes_stay_as_they_are() -> None:
    graphs = [canonicalize(scaled(16, (3, 5), 2.0)) for _ in SIZES]
    compute_factors(graphs)
    assert [node.operator.name for node in graphs[0].nodes] == ["Affine"]


def test_factors_that_nobody_knows_how_to_compute_stay() -> None:
    graphs = [canonicalize(scaled(size, (3, 5), 2.0)) for size in SIZES]
    for graph in graphs:
        node = graph.nodes[0]
        x, factors, summands = node.inputs
        assert factors is not None and factors.data is not None
        node.inputs = x, constant("factors", factors.data), summands
    compute_factors(graphs)
    assert [node.operator.name for node in graphs[0].nodes] == ["Affine"]
