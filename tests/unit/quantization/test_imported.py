"""Graphs that bring their own parameters: what becomes int8, with which integers, and what stays float."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.errors import UnsupportedError, UsageError
from qglow.core.passes import PassLog
from qglow.core.types import Array, ElementType, Quantization, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.interpreter import Interpreter
from qglow.graph.operator import Operator
from qglow.graph.ops.control import COUNT, Loop
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Relu
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.graph.ops.shape import Concat, Reshape
from qglow.graph.ops.softmax import Softmax
from qglow.graph.verifier import verify_graph
from qglow.quantization.folding.fuse_clamp import FuseClamp
from qglow.quantization.imported import quantize_imported
from qglow.quantization.pipeline import QuantizedGraph
from qglow.recipe.schema import Recipe
from qglow.toolchain import CompileOptions, compile_graph
from tests.runtimes import RUNNABLE

RNG = np.random.default_rng(3)
X, Y, Z = (Quantization.per_tensor(s, z) for s, z in ((0.02, -8), (0.05, 3), (0.04, -128)))


class Network:
    """A graph over x <1 x 3 x 6 x 6>, with conversions where they are asked for."""

    def __init__(self) -> None:
        self.b = GraphBuilder("g")
        self.x = self.b.input("x", float_type(1, 3, 6, 6))

    def through(self, value: Value, quantization: Quantization) -> Value:
        """Quantized and dequantized."""
        integers = self.integers(value, quantization)
        return self.b.node(Dequantize(), integers, name=f"{value.name}_r")

    def integers(self, value: Value, quantization: Quantization) -> Value:
        kinds = [value.type.quantized(quantization)]
        return self.b.node(Quantize(), value, name=f"{value.name}_q", output_types=kinds)

    def weights(self, name: str, data: Array, quantization: Quantization) -> Value:
        return self.b.node(Dequantize(), constant(f"{name}_q", data, quantization), name=name)

    def conv(self, x: Value, data: Array, quantization: Quantization, bias: Array | None = None) -> Value:
        vector = None if bias is None else self.b.constant("bias", bias)
        return self.b.node(Conv(), x, self.weights("w", data, quantization), vector, name="c")

    def node(self, operator: Operator, *inputs: Value | None, name: str) -> Value:
        return self.b.node(operator, *inputs, name=name)

    def quantized(self, *outputs: Value, **options: object) -> QuantizedGraph:
        self.graph = self.b.finish(*outputs)
        return quantize_imported(self.graph, Recipe(**options))  # type: ignore[arg-type]


def int8_weights(*shape: int) -> Array:
    return RNG.integers(-127, 128, shape).astype(np.int8)


def reasons(result: QuantizedGraph) -> dict[str, str]:
    return {node.name: node.reason for node in result.report.float_nodes}


def approximate(result: QuantizedGraph) -> dict[str, str]:
    return {e.where: e.what for e in result.report.log if e.applied and not e.exact}


def node_of(graph: Graph, name: str) -> Node:
    return next(node for node in graph.nodes if node.output.name.startswith(name))


def feed(seed: int = 0) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).normal(0, 1.5, (1, 3, 6, 6)).astype(np.float32)}


def test_integers_and_parameters_are_those_of_the_model_and_nothing_is_left_in_between() -> None:
    n = Network()
    data, scales = int8_weights(4, 3, 1, 1), np.array([0.01, 0.02, 0.004, 0.03], np.float32)
    c = n.conv(n.through(n.x, X), data, Quantization.per_channel(scales, 0))
    result = n.quantized(n.through(c, Y))
    assert [node.operator.name for node in result.graph.nodes] == ["Quantize", "Conv", "Dequantize"]
    conv = result.graph.nodes[1]
    x, w = conv.inputs[0], conv.inputs[1]
    assert x is not None and x.type.quantization == X and conv.output.type.quantization == Y
    assert w is not None and w.data is not None
    np.testing.assert_array_equal(w.data, data)
    assert w.type.quantization == Quantization.per_channel(scales, 0)
    assert not reasons(result) and not approximate(result) and result.report.given


@pytest.mark.parametrize("isa", [isa.name for isa in RUNNABLE])
@pytest.mark.parametrize("group", [1, 3])
def test_weights_of_minus_128_are_kept_and_give_the_same_bits(isa: str, group: int) -> None:
    n = Network()
    data = np.full((6, 3 // group, 3, 3), -128, np.int8)
    data[::2] = RNG.integers(-128, 128, data[::2].shape)
    w = n.weights("w", data, Quantization.per_tensor(0.003, 0))
    c = n.node(Conv(pads=(1, 1, 1, 1), group=group), n.through(n.x, X), w, name="c")
    result = n.quantized(n.through(c, Y))
    program = compile_graph(result.graph, CompileOptions(isa=isa))
    for inputs in (feed(), {"x": np.full((1, 3, 6, 6), -9.0, np.float32)}):
        expected = Interpreter(result.graph).run(inputs)
        np.testing.assert_array_equal(
            program(inputs)[result.graph.outputs[0].name], next(iter(expected.values()))
        )
    kept = next(node for node in result.graph.nodes if isinstance(node.operator, Conv)).inputs[1]
    assert kept is not None and kept.data is not None
    np.testing.assert_array_equal(kept.data, data)


def test_zero_points_of_weights_are_subtracted_where_int8_holds_the_rest() -> None:
    n = Network()
    data = RNG.integers(0, 100, (4, 3, 1, 1)).astype(np.int8)
    c = n.conv(
        n.through(n.x, X), data, Quantization.per_channel(np.full(4, 0.01), 0, np.array([50, 0, 9, 1]))
    )
    result = n.quantized(n.through(c, Y))
    w = node_of(result.graph, "c").inputs[1]
    assert w is not None and w.data is not None and w.type.quantization is not None
    np.testing.assert_array_equal(w.data.reshape(4, 3), data.reshape(4, 3) - np.array([[50], [0], [9], [1]]))
    assert set(w.type.quantization.zero_points) == {0} and not approximate(result)


def test_weights_beyond_int8_without_their_zero_point_are_rounded_and_the_log_says_so() -> None:
    n = Network()
    data = np.array([-100, 0, 100], np.int8).reshape(1, 3, 1, 1)
    c = n.conv(n.through(n.x, X), data, Quantization.per_tensor(0.01, 100))
    result = n.quantized(n.through(c, Y))
    assert "rounded to symmetric int8" in approximate(result)["Conv_0"]
    w = node_of(result.graph, "c").inputs[1]
    assert w is not None and w.data is not None and w.type.quantization is not None
    reals = w.data.reshape(3) * np.float32(w.type.quantization.scales[0])
    np.testing.assert_allclose(reals, [-2.0, -1.0, 0.0], atol=0.008)


def test_sums_without_parameters_of_their_result_give_float() -> None:
    n = Network()
    c = n.conv(n.through(n.x, X), int8_weights(4, 3, 1, 1), Quantization.per_tensor(0.01, 0))
    result = n.quantized(n.node(Softmax(axis=1), c, name="y"))
    assert [node.operator.name for node in result.graph.nodes] == ["Quantize", "Conv", "Softmax"]
    assert list(reasons(result)) == ["Softmax_0"]
    assert result.graph.nodes[1].output.type.is_float


def test_a_result_that_is_quantized_in_two_ways_keeps_its_meaning() -> None:
    n = Network()
    a = n.node(Add(), n.through(n.x, X), n.through(n.x, X), name="a")
    c = n.conv(n.through(n.x, X), int8_weights(3, 3, 1, 1), Quantization.per_tensor(0.01, 0))
    graph_outputs = [n.through(v, q) for v, q in ((a, Y), (c, Y))]
    second = [n.node(Dequantize(), n.integers(v, Z), name=f"{v.name}_other") for v in (a, c)]
    result = n.quantized(*graph_outputs, *second)
    assert "not in one way" in reasons(result)["Add_0"]
    assert node_of(result.graph, "c").output.type.is_float
    _assert_as_given(n.graph, result)


def _assert_as_given(given: Graph, result: QuantizedGraph) -> None:
    """As the standard says of the given graph, but for ties that are rounded the other way."""
    inputs = feed(4)
    expected, found = Interpreter(given).run(inputs), Interpreter(result.graph).run(inputs)
    for name, array in expected.items():
        assert np.mean(found[name] == array) > 0.95, name


def test_parameters_pass_through_data_movement_in_both_directions() -> None:
    n = Network()
    flat = n.node(Reshape(shape=(1, 108)), n.x, name="flat")
    back = n.node(Reshape(shape=(1, 3, 36)), n.through(flat, X), name="back")
    s = n.node(Sigmoid(), back, name="s")
    rows = n.node(Reshape(shape=(3, 36)), s, name="rows")
    result = n.quantized(n.through(rows, Z))
    names = [node.operator.name for node in result.graph.nodes]
    assert names == ["Quantize", "Reshape", "Reshape", "Sigmoid", "Reshape", "Dequantize"]
    _assert_as_given(n.graph, result)


def test_a_concat_of_other_parameters_rescales_its_operands() -> None:
    n = Network()
    both = n.node(Concat(axis=1), n.through(n.x, X), n.through(n.x, Z), name="both")
    result = n.quantized(n.through(both, Z))
    assert result.report.rescales_left == 1 and not reasons(result)
    _assert_as_given(n.graph, result)


def test_what_has_no_parameters_stays_float_with_the_reason() -> None:
    n = Network()
    w = n.b.constant("plain", RNG.normal(size=(3, 3, 1, 1)).astype(np.float32))
    c = n.node(Conv(), n.through(n.x, X), w, name="c")
    a = n.node(Add(), c, n.x, name="a")
    result = n.quantized(n.through(a, Y))
    assert "no integers for its weights" in reasons(result)["Conv_0"]
    assert "no parameters for its operand" in reasons(result)["Add_0"]


def test_a_bias_at_another_scale_is_rounded_and_the_log_says_so() -> None:
    n = Network()
    bias = np.array([0.123456, 1.0, -2.0], np.float32)
    c = n.conv(n.through(n.x, X), int8_weights(3, 3, 1, 1), Quantization.per_tensor(0.01, 0), bias)
    result = n.quantized(n.through(c, Y))
    assert "bias rounded" in approximate(result)["Conv_0"]


@pytest.mark.parametrize(("first", "why"), [(4.4e5, "do not fit"), (429450.0, "beyond int32")])
def test_sums_that_could_overflow_stay_float(first: float, why: str) -> None:
    n = Network()
    bias = np.array([first, 0.0, 0.0], np.float32)
    data = np.full((3, 3, 3, 3), 127, np.int8)
    c = n.conv(n.through(n.x, X), data, Quantization.per_tensor(0.01, 0), bias)
    assert why in reasons(n.quantized(n.through(c, Y)))["Conv_0"]


def test_a_clamp_between_equal_parameters_becomes_bounds() -> None:
    n = Network()
    c = n.conv(n.through(n.x, X), int8_weights(3, 3, 1, 1), Quantization.per_tensor(0.01, 0))
    y = n.through(n.node(Relu(), n.through(c, Y), name="relu"), Y)
    result = n.quantized(y)
    assert [node.operator.name for node in result.graph.nodes] == ["Quantize", "Conv", "Dequantize"]
    _assert_as_given(n.graph, result)


def test_a_clamp_between_other_parameters_says_why_it_stays() -> None:
    n = Network()
    c = n.conv(n.through(n.x, X), int8_weights(3, 3, 1, 1), Quantization.per_tensor(0.01, 0))
    graph = n.b.finish(n.through(n.node(Relu(), n.through(c, Y), name="relu"), Z))
    log = PassLog()
    FuseClamp().run(graph, log)
    assert [e.what for e in log.entries] == ["%relu is quantized with other parameters, or an output"]


def test_the_float_graph_saturates_as_the_model_does_and_rounds_nothing() -> None:
    n = Network()
    c = n.conv(n.through(n.x, X), int8_weights(3, 3, 1, 1), Quantization.per_tensor(0.01, 0))
    source = n.quantized(n.through(c, Z)).source
    verify_graph(source, "test")
    assert not any(value.type.is_quantized for value in source.values())
    (found,) = Interpreter(source).run(feed()).values()
    assert found.min() == 0.0, "the zero point of -128 stands for a Relu"
    assert len(np.unique(found[found > 0])) == np.count_nonzero(found > 0)


def test_options_that_apply() -> None:
    def network() -> tuple[Network, Value]:
        n = Network()
        c = n.conv(n.through(n.x, X), int8_weights(3, 3, 1, 1), Quantization.per_tensor(0.01, 0))
        return n, n.through(c, Y)

    n, y = network()
    assert reasons(n.quantized(y, keep_float=("op:Conv",))) == {"Conv_0": "kept by keep_float op:Conv"}
    n, y = network()
    with pytest.raises(UnsupportedError, match="1 nodes stay float"):
        n.quantized(y, keep_float=("op:Conv",), assert_all_quantized=True)
    n, y = network()
    graph = n.quantized(y, io="int8", assert_all_quantized=True).graph
    assert [v.type.element for v in (*graph.inputs, *graph.outputs)] == [ElementType.INT8] * 2
    assert [node.operator.name for node in graph.nodes] == ["Conv"]


def test_int8_outputs_need_parameters_in_the_model() -> None:
    n = Network()
    c = n.conv(n.through(n.x, X), int8_weights(3, 3, 1, 1), Quantization.per_tensor(0.01, 0))
    with pytest.raises(UsageError, match="no parameters for 'c'"):
        n.quantized(c, io="int8")


def test_a_model_without_parameters_needs_a_profile() -> None:
    n = Network()
    with pytest.raises(UsageError, match="profile it"):
        n.quantized(n.conv(n.x, int8_weights(3, 3, 1, 1), Quantization.per_tensor(0.01, 0)))


def test_parameters_of_a_type_stay_with_constants_of_an_addition() -> None:
    n = Network()
    offset = n.weights("offset", int8_weights(3, 1, 1), Quantization.per_tensor(0.01, 5))
    a = n.node(Add(), n.through(n.x, X), offset, name="a")
    result = n.quantized(n.through(a, Y))
    found = node_of(result.graph, "a").inputs[1]
    assert found is not None
    assert found.type == TensorType(ElementType.INT8, (3, 1, 1), Quantization.per_tensor(0.01, 5))
    _assert_as_given(n.graph, result)


def test_bodies_of_loops_compute_in_the_integers_that_they_bring() -> None:
    """A product inside is one of integers, and of floats in `source`."""

    def looped(**options: object) -> QuantizedGraph:
        n, inner = Network(), Network()
        number, state = inner.b.input("number", COUNT), inner.b.input("state", float_type(1, 3, 6, 6))
        body = inner.b.finish(
            inner.through(inner.conv(inner.through(state, X), weights, Quantization.per_tensor(0.01, 0)), Y)
        )
        body.inputs = [number, state]
        return n.quantized(n.node(Loop(body, rounds=3, carried=1), None, None, n.x, name="l"), **options)

    weights = int8_weights(3, 3, 1, 1)
    result = looped()
    (inside,) = result.graph.regions()
    assert [node.operator.name for node in inside.nodes] == ["Quantize", "Conv", "Dequantize"]
    assert [node.name for node in result.report.quantized] == ["Loop_0.body/Conv_0"]
    assert not any(v.type.is_quantized for region in result.source.regions() for v in region.values())
    state = feed()["x"]
    for _ in range(3):
        (state,) = Interpreter(body_alone(weights)).run({"x": state}).values()
    assert np.array_equal(Interpreter(result.graph).run(feed())[result.graph.outputs[0].name], state)
    program = compile_graph(result.graph, CompileOptions(threads=1))
    assert np.array_equal(program(feed())[result.graph.outputs[0].name], state)
    assert not looped(keep_float=("op:Loop",)).report.quantized


def body_alone(weights: Array) -> Graph:
    n = Network()
    n.quantized(n.through(n.conv(n.through(n.x, X), weights, Quantization.per_tensor(0.01, 0)), Y))
    return quantize_imported(n.graph).graph
