"""Operators of the later families, exported and run by onnxruntime."""

from __future__ import annotations

import numpy as np

from qglow.core.types import float_type
from qglow.exporter import export_float
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.normalization import LRN, InstanceNormalization, LayerNormalization
from qglow.graph.ops.pool import AveragePool
from qglow.graph.ops.reduce import CumSum, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
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
    values += [b.node(CumSum(axis, axis > 0, axis == 2), x) for axis in (-1, 0, 2)]
    assert_exports(b.finish(*values))


def test_dilated_averages_are_exported() -> None:
    b = GraphBuilder("dilated")
    x = b.input("x", float_type(2, 3, 9, 8))
    pool = AveragePool(kernel=(2, 3), pads=(1, 2, 1, 0), dilations=(3, 2), strides=(2, 1))
    assert_exports(b.finish(b.node(pool, x)))


def test_normalizations_are_exported() -> None:
    b = GraphBuilder("normalizations")
    x = b.input("x", float_type(2, 6, 4, 5))
    s, t = (b.constant(n, np.linspace(0.5, 2, 6, dtype=np.float32)) for n in ("s", "t"))
    whole = b.constant("whole", np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5))
    values = [
        b.node(LayerNormalization(axis=2, epsilon=1e-3), x, whole),
        b.node(LayerNormalization(axis=2), x, whole, whole),
        b.node(InstanceNormalization(), x, s, t),
        b.node(LRN(size=3, alpha=0.2, beta=0.5, bias=2.0), x),
    ]
    assert_exports(b.finish(*values))
