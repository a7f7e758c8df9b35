"""Scopes of channel scaling: found together as alone, in a number of steps that grows with the graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, PRelu, Relu
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.shape import Transpose
from qglow.quantization import scopes
from qglow.quantization.scopes import NoScope, Scopes, producers_of

CHANNELS = 2
Found = dict[str, tuple[int, list[int]]] | None
"""Axis and channels by name of the value; None where there is no scope."""


def convolved(b: GraphBuilder, x: Value, name: str) -> Value:
    weights = b.constant(f"{name}.w", np.ones((CHANNELS, CHANNELS, 1, 1), np.float32))
    return b.node(Conv(), x, weights, name=name)


def residual_chain(length: int) -> Graph:
    """Blocks around a stream that is an output in the end, which no scope may have."""
    b = GraphBuilder("g")
    stream = convolved(b, b.input("x", float_type(1, CHANNELS, 2, 2)), "stem")
    for index in range(length):
        inner = b.node(Relu(), convolved(b, stream, f"first{index}"), name=f"relu{index}")
        stream = b.node(Add(), stream, convolved(b, inner, f"second{index}"), name=f"sum{index}")
    return b.finish(stream)


def found_by(walks: Scopes, node: Node) -> Found:
    try:
        scope = walks.of(node)
    except NoScope:
        return None
    return {value.name: (at.axis, at.channels.tolist()) for value, at in scope.values.items()}


def steps(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> int:
    """Number of values that are visited to look for the scopes of all producers."""
    visited: list[Value] = []
    real = scopes._through_producer

    def counting(scope: scopes.Scope, value: Value, layout: scopes.ChannelLayout) -> scopes.Places:
        visited.append(value)
        return real(scope, value, layout)

    with monkeypatch.context() as patched:
        patched.setattr(scopes, "_through_producer", counting)
        walks = Scopes(graph)
        assert [found_by(walks, node) is None for node in producers_of(graph)].count(True) > 1
    return len(visited)


def test_steps_grow_with_the_length_of_a_residual_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = (steps(residual_chain(length), monkeypatch) for length in (20, 80))
    assert long <= 4 * short


def test_the_reason_is_that_of_the_values_that_go_together() -> None:
    graph = residual_chain(3)
    walks = Scopes(graph)
    with pytest.raises(NoScope, match="%sum2 is an output of the model"):
        walks.of(graph.nodes[0])
    makers = {node.output.name: node for node in graph.nodes}
    for index in range(3):
        with pytest.raises(NoScope, match="%sum2 is an output of the model"):
            walks.of(makers[f"second{index}"])
        inner = makers[f"first{index}"]
        assert walks.of(inner).producers == [inner]


KINDS = st.sampled_from(["conv", "relu", "add", "transpose", "sigmoid"])
STEPS = st.lists(st.tuples(KINDS, st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=10)


def network(made: list[tuple[str, int, int]]) -> Graph:
    """Nodes that read earlier values; those that nobody reads are the outputs."""
    b = GraphBuilder("g")
    values = [convolved(b, b.input("x", float_type(1, CHANNELS, 2, 2)), "stem")]
    for index, (kind, first, second) in enumerate(made):
        x, y = values[-1 - first % len(values)], values[-1 - second % len(values)]
        if kind == "conv":
            values.append(convolved(b, x, f"conv{index}"))
        elif kind == "add":
            values.append(b.node(Add(), x, y, name=f"add{index}"))
        elif kind == "transpose":
            values.append(
                b.node(Transpose((0, 2, 1, 3) if second % 2 else (0, 1, 3, 2)), x, name=f"transpose{index}")
            )
        else:
            values.append(b.node(Relu() if kind == "relu" else Sigmoid(), x, name=f"{kind}{index}"))
    return b.finish(*[value for value in values if not value.users()])


@settings(max_examples=60)
@given(STEPS)
def test_scopes_found_together_are_those_found_alone(made: list[tuple[str, int, int]]) -> None:
    graph = network(made)
    together = Scopes(graph)
    for node in producers_of(graph):
        assert found_by(together, node) == found_by(Scopes(graph), node)


def test_a_walk_that_comes_to_data_movement_from_behind_does_not_hinder_others() -> None:
    b = GraphBuilder("g")
    x = b.input("x", float_type(1, CHANNELS, 2, 2))
    behind, before = convolved(b, x, "behind"), convolved(b, x, "before")
    turned = b.node(Transpose((0, 1, 3, 2)), before, name="turned")
    graph = b.finish(convolved(b, b.node(Add(), behind, turned, name="sum"), "last"))
    walks = Scopes(graph)
    with pytest.raises(NoScope, match="%turned comes from"):
        walks.of(graph.nodes[0])
    assert [node.output.name for node in walks.of(graph.nodes[1]).producers] == ["before", "behind"]


def test_a_slope_is_not_scaled() -> None:
    b = GraphBuilder("g")
    x = b.input("x", float_type(1, CHANNELS, 2, 2))
    inside, slope = convolved(b, x, "inside"), convolved(b, x, "slope")
    graph = b.finish(convolved(b, b.node(PRelu(), inside, slope, name="bent"), "last"))
    makers = {node.output.name: node for node in graph.nodes}
    assert Scopes(graph).of(makers["inside"]).producers == [makers["inside"]]
    with pytest.raises(NoScope, match="reads %slope"):
        Scopes(graph).of(makers["slope"])
