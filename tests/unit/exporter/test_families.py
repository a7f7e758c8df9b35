"""Operators of the later families, exported and run by onnxruntime."""

from __future__ import annotations

from qglow.core.types import float_type
from qglow.exporter import export_float
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.pool import AveragePool
from qglow.graph.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from tests.unit.importer.tiny import assert_close, random_feeds, session


def assert_exports(graph: Graph) -> None:
    feeds = random_feeds(graph)
    expected = Interpreter(graph).run(feeds)
    results = session(export_float(graph)).run(list(expected), feeds)
    for (name, array), result in zip(expected.items(), results, strict=True):
        assert_close(result, array, name)


def test_reductions_are_exported() -> None:
    b = GraphBuilder("reductions")
    x = b.input("x", float_type(2, 3, 4, 5))
    kinds = (ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd)
    values = [b.node(kind((1, -1), keepdims), x) for kind in kinds for keepdims in (True, False)]
    assert_exports(b.finish(*values))


def test_dilated_averages_are_exported() -> None:
    b = GraphBuilder("dilated")
    x = b.input("x", float_type(2, 3, 9, 8))
    pool = AveragePool(kernel=(2, 3), pads=(1, 2, 1, 0), dilations=(3, 2), strides=(2, 1))
    assert_exports(b.finish(b.node(pool, x)))
