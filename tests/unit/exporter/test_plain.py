"""The exported float model is the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qglow.core.errors import InternalError
from qglow.core.types import ElementType, TensorType, float_type
from qglow.exporter import export_float
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul, Pow, PRelu, Relu, Sub
from qglow.graph.ops.functions import (
    Abs,
    PowerOf,
    Sigmoid,
    Tanh,
)
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.logic import And, Compare, Not, Or
from qglow.graph.ops.movement import Expand, Gather, Pad, Slice
from qglow.graph.ops.normalization import Affine, BatchNormalization
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from qglow.graph.ops.quantize import QuantizationProfile
from qglow.graph.ops.resize import Resize, ResizeNearest
from qglow.graph.ops.selection import Max, Min, Where
from qglow.graph.ops.shape import ChannelShuffle, Concat, Identity, Reshape, Transpose
from qglow.graph.ops.softmax import LogSoftmax, Softmax
from qglow.importer import import_model
from qglow.numerics.logic import RELATIONS
from tests.suite.functions import FUNCTIONS
from tests.unit.exporter.quantized import QuantizedGraph
from tests.unit.importer.tiny import assert_close, random_feeds, session
from tests.zoo import zoo_model


def every_operator() -> Graph:
    """A chain through every operator that has a float form."""
    rng = np.random.default_rng(1)
    b = GraphBuilder("all")

    def floats(name: str, *shape: int) -> object:
        return b.constant(name, rng.normal(0, 1, shape).astype(np.float32))

    x = b.input("x", float_type(2, 4, 8, 9))
    w, bias = floats("w", 6, 2, 3, 3), floats("bias", 6)
    v = b.node(Conv(pads=(1, 0, 1, 2), strides=(1, 2), group=2, lo=0.0, hi=6.0), x, w, bias)  # type: ignore[arg-type]
    v = b.node(MaxPool(kernel=(3, 2), pads=(1, 0, 1, 1), ceil_mode=True, strides=(2, 1)), v)
    v = b.node(AveragePool(kernel=(2, 2), pads=(1, 1, 0, 0), count_include_pad=True), v)
    s, t = floats("s", 6), floats("t", 6)
    mean, variance = floats("mean", 6), b.constant("variance", rng.uniform(0.5, 2, 6).astype(np.float32))
    v = b.node(BatchNormalization(epsilon=1e-3), v, s, t, mean, variance)  # type: ignore[arg-type]
    v = b.node(Affine(lo=-1.0), v, s, t)  # type: ignore[arg-type]
    v = b.node(Concat(axis=1), v, b.node(Tanh(), v), b.node(Sigmoid(), v))
    v = b.node(ChannelShuffle(groups=6), v)
    v = b.node(Slice(starts=(0, 1, 0, 1), ends=(2, 17, 4, 4), steps=(1, 2, 1, 1)), v)
    v = b.node(Pad(pads=(0, 0, 1, 0, 0, 2, 0, 0), value=0.5), v)
    v = b.node(Pad(pads=(0, 0, 1, 0, 0, 0, 0, 1), mode="reflect"), v)
    v = b.node(Slice(starts=(0, 0, 1, 0), ends=(2, 8, 4, 4), steps=(1, 1, 1, 1)), v)
    v = b.node(ResizeNearest(sizes=(2, 8, 6, 5), scales=(1.0, 1.0, 2.0, 1.4)), v)
    v = b.node(Resize(sizes=(2, 8, 3, 4), scales=(1.0, 1.0, 0.5, 0.8), mode="linear"), v)
    v = b.node(Gather(axis=1), v, b.constant("i", np.array([3, 0, -1, 5], np.int64)))
    v = b.node(Mul(), v, floats("m", 4, 1, 1))  # type: ignore[arg-type]
    v = b.node(Sub(hi=2.5), v, floats("u", 1))  # type: ignore[arg-type]
    v = b.node(Add(lo=0.0), v, b.node(Relu(), v))
    v = b.node(Clip(lo=-0.5, hi=4.0), b.node(Identity(), b.node(Transpose(perm=(0, 2, 3, 1)), v)))
    v = b.node(
        Expand(shape=(3, *v.type.shape[1:])),
        b.node(Slice(starts=(0,) * 4, ends=(1, *v.type.shape[1:]), steps=(1,) * 4), v),
    )
    v = b.node(Slice(starts=(1, 0, 0, 0), ends=v.type.shape, steps=(1,) * 4), v)
    flat = b.node(Reshape(shape=(2, v.type.size // 2)), v)
    product = b.node(Gemm(lo=-3.0), flat, floats("g", flat.type.shape[1], 5), floats("h", 5))  # type: ignore[arg-type]
    product = b.node(MatMul(), product, floats("k", 5, 4))  # type: ignore[arg-type]
    b.append(QuantizationProfile(), product)
    return b.finish(b.node(Softmax(axis=1), product, name="y"), b.node(GlobalAveragePool(), v, name="z"))


def every_elementwise_operator() -> Graph:
    """Functions, choices and comparisons of values that suit them all."""
    b = GraphBuilder("elementwise")
    x, z = b.input("x", float_type(2, 3, 4)), b.input("z", float_type(3, 1))
    positive = b.node(Add(), b.node(Abs(), x), b.constant("half", np.array(0.5, np.float32)))
    functions = [*FUNCTIONS, PowerOf(exponent=1.5), LogSoftmax(axis=1), Softmax(axis=1, masked_to_zero=True)]
    values = [b.node(operator, positive) for operator in functions]
    values += [b.node(operator, positive, z) for operator in (Div(), Pow(), PRelu(), Max(), Min())]
    found = [b.node(Compare(relation=relation), x, z) for relation in RELATIONS]
    either = b.node(Or(), b.node(And(), found[2], found[1]), b.node(Not(), found[4]))
    unlike = b.node(Compare(relation="not-equal"), either, found[5])
    values.append(b.node(Where(), unlike, x, z))
    return b.finish(*values)


def assert_exports(graph: Graph) -> None:
    feeds = random_feeds(graph)
    expected = Interpreter(graph).run(feeds)
    results = session(export_float(graph)).run(list(expected), feeds)
    for (name, array), result in zip(expected.items(), results, strict=True):
        assert_close(result, array, name)


def test_every_operator_is_exported() -> None:
    assert_exports(every_operator())
    assert_exports(every_elementwise_operator())


@pytest.mark.parametrize("element", [ElementType.INT64, ElementType.INT32, ElementType.BOOL])
def test_pad_has_a_value_of_the_type_of_its_input(element: ElementType) -> None:
    b = GraphBuilder("pad")
    x = b.input("x", TensorType(element, (2, 3)))
    values = [b.node(Pad(pads=(0, 1, 0, 2), value=value), x) for value in (1.0, 0.0)]
    graph = b.finish(*values)
    feeds = {"x": np.array([[0, 1, 1], [1, 0, 1]], element.dtype)}
    results = session(export_float(graph)).run(None, feeds)
    for result, expected in zip(results, Interpreter(graph).run(feeds).values(), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", ["digits", "mymodel", "cifar10_resnet20", "mlkws_ds_cnn_l"])
def test_imported_model_is_exported_as_the_same_model(name: str, tmp_path: Path) -> None:
    graph = import_model(zoo_model(name)).graph
    path = tmp_path / f"{graph.name}.onnx"
    export_float(graph, path)
    again = import_model(path).graph
    assert [(n.name, n.operator) for n in again.nodes] == [(n.name, n.operator) for n in graph.nodes]
    assert_exports(graph)


def test_same_graph_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    export_float(every_operator(), first)
    export_float(every_operator(), second)
    assert first.read_bytes() == second.read_bytes()


def test_quantized_graph_is_refused() -> None:
    work = QuantizedGraph()
    with pytest.raises(InternalError, match="export_qdq"):
        export_float(work.finish(work.input("x", (2, 3))))
