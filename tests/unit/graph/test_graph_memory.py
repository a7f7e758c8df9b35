"""Estimates of the memory of a graph, and what they refuse before anything is taken."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from qglow.core.errors import MemoryLimitError
from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.folding import evaluate_constant_node
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.memory import graph_memory
from qglow.graph.ops.elementwise import Add, Relu
from qglow.graph.ops.movement import Expand
from qglow.toolchain import compile_graph, lower_graph


def chain(size: int) -> Graph:
    """x -> a -> b -> y = b + c, of `size` floats each."""
    builder = GraphBuilder("chain")
    x = builder.input("x", float_type(size))
    a = builder.node(Relu(), x, name="a")
    b = builder.node(Relu(), a, name="b")
    c = builder.constant("c", np.broadcast_to(np.float32(1), (size,)))
    return builder.finish(builder.node(Add(), b, c, name="y"))


def test_estimate_of_a_graph() -> None:
    # c, x and y, and two computed values at once: a and b, then b and y.
    assert graph_memory(chain(1000)) == 4000 * (1 + 2 + 2)
    assert graph_memory(chain(1000), keep=True) == 4000 * (1 + 2 + 3)


@pytest.mark.parametrize("use", [Interpreter, compile_graph, lower_graph])
def test_a_graph_beyond_the_limit_is_refused(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[Graph], object]
) -> None:
    monkeypatch.setenv("QGLOW_MAX_MEMORY", "8M")
    use(chain(1000))
    with pytest.raises(
        MemoryLimitError, match=r"graph 'chain' needs about 10M of memory, and 8M are allowed"
    ):
        use(chain(500_000))


def test_an_absurd_graph_is_refused_without_a_limit() -> None:
    builder = GraphBuilder("absurd")
    graph = builder.finish(builder.node(Relu(), builder.input("x", float_type(2**40, 2**40))))
    with pytest.raises(MemoryLimitError, match="1000000T and more"):
        compile_graph(graph)


def test_folding_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Value("one", float_type(1), np.ones(1, np.float32))
    tiled = Node("tile", Expand(shape=(2**20,)), [one], [Value("t", float_type(2**20))])
    results = evaluate_constant_node(tiled)
    assert results is not None and results[0].shape == (2**20,)
    monkeypatch.setenv("QGLOW_MAX_MEMORY", "8M")
    with pytest.raises(MemoryLimitError, match="computing 't', which is constant, needs"):
        evaluate_constant_node(tiled)
