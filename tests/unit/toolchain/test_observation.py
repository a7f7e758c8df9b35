"""Values inside a compiled program equal those of the interpreter, whatever it keeps in buffers."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.quantization.pipeline import quantize
from qglow.toolchain.observation import observe
from tests.unit.profiling.networks import profile_of, residual_network, samples

INPUTS = [{"x": sample.inputs["x"][None]} for sample in samples(3, seed=4)]


def reshaped() -> Graph:
    """A network whose values pass through views that have no buffer of their own."""
    random = np.random.default_rng(1)
    b = GraphBuilder("reshaped")
    x = b.input("x", float_type(1, 3, 6, 6))
    turned = b.node(Transpose(perm=(0, 2, 3, 1)), x, name="turned")
    image = b.node(Reshape(shape=(1, 1, 6, 18)), turned, name="image")
    w = b.constant("w", random.normal(size=(4, 1, 3, 3)).astype(np.float32))
    y = b.node(Conv(), image, w, name="conv")
    flat = b.node(Reshape(shape=(4, 64)), y, name="flat")
    u = b.constant("u", random.normal(size=(64, 2)).astype(np.float32))
    v = b.constant("v", random.normal(size=(256, 2)).astype(np.float32))
    row = b.node(Reshape(shape=(1, 256)), y, name="row")
    return b.finish(b.node(Gemm(), flat, u, name="gemm"), b.node(Gemm(), row, v, name="other"))


def test_every_value_of_an_int8_program_is_the_interpreters() -> None:
    graph = quantize(residual_network(), profile_of()).graph
    values = [value for node in graph.nodes for value in node.outputs]
    for inputs, found in zip(INPUTS, observe(graph, values, iter(INPUTS)), strict=True):
        expected: dict[Value, Array] = {}
        Interpreter(graph).run(inputs, taps=expected.__setitem__)
        for value in values:
            assert found[value].dtype == expected[value].dtype
            if value.type.is_quantized:
                assert np.array_equal(found[value], expected[value]), value
            else:
                assert np.allclose(found[value], expected[value], atol=1e-5)


def test_views_and_inputs_are_there_too() -> None:
    graph = reshaped()
    values = [*graph.inputs, *(value for node in graph.nodes for value in node.outputs)]
    [found] = observe(graph, values, INPUTS[:1])
    expected: dict[Value, Array] = {}
    Interpreter(graph).run(INPUTS[0], taps=expected.__setitem__)
    for value in values:
        assert found[value].shape == value.type.shape
        assert np.allclose(found[value], expected[value], atol=1e-4), value
