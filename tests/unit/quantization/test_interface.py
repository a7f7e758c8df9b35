"""int8 inputs and outputs: the same integers inside, conversions left to the caller."""

from __future__ import annotations

import numpy as np
import onnxruntime

from qglow.core.types import ElementType, float_type
from qglow.exporter import export_qdq
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.softmax import Softmax
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.quantization.pipeline import quantize
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe
from qglow.toolchain import compile_graph
from tests.unit.profiling.networks import profile_of, residual_network

MINMAX = Calibration("minmax")
FLOAT = Recipe(calibration=MINMAX)
INT8 = Recipe(calibration=MINMAX, io="int8")


def softmax_network() -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", float_type(1, 3, 6, 6))
    w = b.constant("w", np.random.default_rng(0).normal(size=(4, 3, 1, 1)).astype(np.float32))
    return b.finish(b.node(Softmax(axis=1), b.node(Conv(), x, w, name="c"), name="y"))


def sample(graph: Graph) -> np.ndarray:
    return np.random.default_rng(3).normal(size=graph.inputs[0].type.shape).astype(np.float32)


def test_inputs_and_outputs_keep_their_names_and_no_conversion_is_left() -> None:
    graph = quantize(residual_network(), profile_of(), INT8).graph
    assert [v.name for v in graph.inputs] == ["x"] and [v.name for v in graph.outputs] == ["y"]
    assert all(v.type.element is ElementType.INT8 for v in [*graph.inputs, *graph.outputs])
    assert {"Quantize", "Dequantize", "Rescale"}.isdisjoint(node.operator.name for node in graph.nodes)


def test_the_integers_are_those_that_a_float_interface_leads_to() -> None:
    plain = quantize(residual_network(), profile_of(), FLOAT).graph
    graph = quantize(residual_network(), profile_of(), INT8).graph
    x = sample(graph)
    kinds = graph.inputs[0].type.quantization, graph.outputs[0].type.quantization
    assert kinds[0] is not None and kinds[1] is not None
    real = Interpreter(plain).run({"x": x})["y"]
    found = Interpreter(graph).run({"x": quantize_by(x, kinds[0])})["y"]
    np.testing.assert_array_equal(found, quantize_by(real, kinds[1]))


def test_a_float_operator_at_the_end_gives_int8_in_its_fixed_range() -> None:
    network = softmax_network()
    graph = quantize(network, profile_of(20, graph=network), INT8).graph
    assert [n.operator.name for n in graph.nodes] == ["Conv", "Softmax", "Quantize"]
    kind = graph.outputs[0].type.quantization
    assert kind is not None and (kind.scale, kind.zero_point) == (1 / 256, -128)


def test_every_runtime_gives_the_same_integers() -> None:
    for network in (residual_network(), softmax_network()):
        graph = quantize(network, profile_of(20, graph=network), INT8).graph
        kind = graph.inputs[0].type.quantization
        assert kind is not None
        x = quantize_by(sample(graph), kind)
        expected = Interpreter(graph).run({"x": x})["y"]
        executable = compile_graph(graph)
        np.testing.assert_array_equal(executable({"x": x})["y"], expected)
        bound = np.zeros(expected.shape, np.uint8)
        executable.bind({"x": x.view(np.uint8) ^ np.uint8(128)}, {"y": bound})()
        np.testing.assert_array_equal((bound ^ np.uint8(128)).view(np.int8), expected)


def test_the_exported_model_takes_and_gives_uint8_or_int8() -> None:
    graph = quantize(residual_network(), profile_of(), INT8).graph
    kinds = graph.inputs[0].type.quantization, graph.outputs[0].type.quantization
    assert kinds[0] is not None and kinds[1] is not None
    x = quantize_by(sample(graph), kinds[0])
    expected = dequantize_by(Interpreter(graph).run({"x": x})["y"], kinds[1])
    for name, offset in (("uint8", 128), ("int8", 0)):
        model = export_qdq(graph, activations="uint8" if offset else "int8").SerializeToString()
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.x64quantprecision", "1")  # no sums that saturate
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        given = (x.astype(np.int16) + offset).astype(name)
        found = session.run(None, {"x": given})[0]
        assert found.dtype == np.dtype(name)
        real = dequantize_by((found.astype(np.int16) - offset).astype(np.int8), kinds[1])
        assert np.abs(real - expected).max() <= 2 * kinds[1].scale
