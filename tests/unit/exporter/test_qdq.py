"""The exported int8 model computes in onnxruntime what the graph means."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import qglow
from qglow.core.errors import InternalError
from qglow.core.types import Quantization, float_type
from qglow.exporter import export_qdq, quantized_value_names
from qglow.exporter.qdq import Activations
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Clip, Mul, Relu, Sub
from qglow.graph.ops.functions import Sigmoid, Tanh
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Expand, Pad, Slice
from qglow.graph.ops.normalization import Affine
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from qglow.graph.ops.quantize import Dequantize, QuantizationProfile, Rescale
from qglow.graph.ops.resize import Resize, ResizeNearest
from qglow.graph.ops.shape import ChannelShuffle, Concat, Identity, Reshape, Transpose
from qglow.graph.ops.softmax import Softmax
from qglow.graph.verifier import verify_graph
from tests.fuzzing import examples
from tests.unit.exporter.quantized import (
    INPUT,
    OTHER,
    QuantizedGraph,
    feeds_of,
    in_onnxruntime,
    interpreted,
    largest_step,
    optimized_operators,
)
from tests.unit.importer.tiny import assert_close, save, session, tiny_model

IMAGE = (2, 6, 9, 8)
Y = Quantization.per_tensor(0.21, -31)
RELU = Quantization.per_tensor(0.1, -128)
SYMMETRIC = Quantization.per_tensor(0.1, 0)
Make = Callable[[QuantizedGraph], Value]


@dataclass(frozen=True)
class Case:
    """One int8 operator; `steps` it may differ by; the operator onnxruntime must find for it."""

    name: str
    make: Make
    steps: int = 1
    fused: str = ""


def conv(
    quantization: Quantization | None, axis: int | None = 0, bias: bool = True, **fields: object
) -> Make:
    def make(g: QuantizedGraph) -> Value:
        operator = Conv(pads=(1, 1, 1, 1), **fields)  # type: ignore[arg-type]
        channels = 6 if operator.group == 6 else 4
        w = g.weight((channels, 6 // operator.group, 3, 3), axis)
        return g.apply(operator, quantization, g.input("x", IMAGE), w, g.bias(channels) if bias else None)

    return make


def gemm(quantization: Quantization | None, bias: bool = True, **fields: float) -> Make:
    def make(g: QuantizedGraph) -> Value:
        w = g.weight((16, 5), 1)
        return g.apply(Gemm(**fields), quantization, g.input("x", (3, 16)), w, g.bias(5) if bias else None)

    return make


def one(operator: object, quantization: Quantization | None = INPUT) -> Make:
    return lambda g: g.apply(operator, quantization, g.input("x", IMAGE))  # type: ignore[arg-type]


def two(operator: object, quantization: Quantization, other: Quantization = OTHER) -> Make:
    return lambda g: g.apply(  # type: ignore[arg-type]
        operator, quantization, g.input("x", IMAGE), g.input("z", (6, 1, 1), other)
    )


def affine(quantization: Quantization, **fields: float) -> Make:
    return lambda g: g.apply(
        Affine(**fields), quantization, g.input("x", IMAGE), g.floats("s", 6), g.floats("t", 6)
    )


def concat(g: QuantizedGraph) -> Value:
    return g.apply(Concat(axis=1), INPUT, g.input("x", IMAGE), g.input("z", (2, 3, 9, 8)))


CASES = [
    Case("conv", conv(Y), 0, "QLinearConv"),
    Case("conv-no-bias", conv(Y, bias=False), 0, "QLinearConv"),
    Case("conv-per-tensor", conv(Y, axis=None), 0, "QLinearConv"),
    Case("conv-group", conv(Y, group=2), 0, "QLinearConv"),
    Case("conv-depthwise-relu", conv(RELU, group=6, lo=0.0), 0, "QLinearConv"),
    Case("conv-relu6-not-implied", conv(SYMMETRIC, lo=0.0, hi=6.0), 0, "QLinearConv"),
    Case("gemm", gemm(Y), 0, "QGemm"),
    Case("gemm-no-bias", gemm(Y, bias=False), 0, "QGemm"),
    Case("gemm-relu", gemm(RELU, lo=0.0), 0, "QGemm"),
    Case("add", two(Add(), Y), fused="QLinearAdd"),
    Case("add-relu-not-implied", two(Add(lo=0.0), SYMMETRIC), fused="QLinearAdd"),
    Case("sub", two(Sub(), Y)),
    Case("mul", two(Mul(), Y), fused="QLinearMul"),
    Case("relu", one(Relu(), RELU)),
    Case("relu-symmetric", one(Relu(), SYMMETRIC)),
    Case("clip", one(Clip(lo=-0.5, hi=1.0), SYMMETRIC)),
    Case("max-pool", one(MaxPool(kernel=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1))), 0, "MaxPool"),
    Case("average-pool", one(AveragePool(kernel=(3, 3), strides=(2, 2)), OTHER), 0, "QLinearAveragePool"),
    Case("average-pool-pads", one(AveragePool(kernel=(3, 3), pads=(1, 1, 1, 1)), OTHER), 0),
    Case(
        "global", one(GlobalAveragePool(), Quantization.per_tensor(0.005, 3)), 0, "QLinearGlobalAveragePool"
    ),
    Case("reshape", one(Reshape(shape=(2, 432))), 0, "Reshape"),
    Case("transpose", one(Transpose(perm=(0, 2, 3, 1))), 0, "Transpose"),
    Case("channel-shuffle", one(ChannelShuffle(groups=3)), 0),
    Case("identity", one(Identity()), 0),
    Case("expand", one(Expand(shape=(3, 2, 6, 9, 8))), 0),
    Case("pad-reflect", one(Pad(pads=(0, 0, 1, 2, 0, 0, 2, 1), mode="reflect")), 0),
    Case(
        "resize-nearest", one(ResizeNearest((2, 6, 18, 16), (1.0, 1.0, 2.0, 2.0), "asymmetric", "floor")), 0
    ),
    Case("resize-linear", one(Resize((2, 6, 12, 4), (1.0, 1.0, 4 / 3, 0.5)), Y)),
    Case("concat", concat, 0, "QLinearConcat"),
    Case("slice", one(Slice(starts=(0, 1, 0, 0), ends=(2, 5, 9, 8), steps=(1, 2, 2, 1))), 0, "Slice"),
    Case("pad", one(Pad(pads=(0, 1, 0, 0, 0, 2, 0, 1), value=0.4)), 0),
    Case("affine", affine(OTHER)),
    Case("affine-relu", affine(RELU, lo=0.0)),
    Case("affine-relu-not-implied", affine(SYMMETRIC, lo=0.0)),
    Case("rescale", one(Rescale(), OTHER)),
    Case("rescale-bounds", one(Rescale(lo=0.0, hi=1.0), OTHER)),
    Case("sigmoid", one(Sigmoid(), Quantization.per_tensor(1 / 256, -128)), fused="QLinearSigmoid"),
    Case("tanh", one(Tanh(), Quantization.per_tensor(1 / 128, 0))),
]
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def graph_of(make: Make) -> Graph:
    work = QuantizedGraph()
    graph = work.finish(make(work))
    verify_graph(graph, "test")
    return graph


def assert_same(graph: Graph, steps: int, activations: Activations = "uint8", optimize: bool = True) -> None:
    feeds = feeds_of(graph)
    expected, outputs = interpreted(graph, feeds)
    actual, results = in_onnxruntime(graph, feeds, activations, optimize)
    assert largest_step(actual, expected) <= steps
    if steps == 0:
        for name, array in outputs.items():
            assert_close(results[name], array, name, 1e-6)


@by_name
@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_operator_gives_the_same_integers(case: Case, activations: Activations) -> None:
    assert_same(graph_of(case.make), case.steps, activations)


@by_name
def test_operator_gives_the_same_integers_in_float(case: Case) -> None:
    """onnxruntime without optimisation dequantizes, computes and quantizes."""
    assert_same(graph_of(case.make), 1, optimize=False)


@pytest.mark.parametrize("case", [c for c in CASES if c.fused], ids=lambda case: case.name)
def test_operator_stays_integer_in_onnxruntime(case: Case, tmp_path: Path) -> None:
    counts = optimized_operators(export_qdq(graph_of(case.make)), tmp_path)
    assert counts[case.fused] == 1


@pytest.mark.parametrize("make", [conv(None, lo=0.0, hi=6.0), conv(None), gemm(None), gemm(None, lo=0.0)])
def test_float_result_of_an_integer_operator_has_no_quantization_behind_it(make: Make) -> None:
    graph = graph_of(make)
    assert_same(graph, 0)
    model = export_qdq(graph)
    assert [n.op_type for n in model.graph.node].count("QuantizeLinear") == 1
    assert model.graph.node[-1].output[0] == graph.outputs[0].name


sizes = st.integers(3, 9)


@settings(max_examples=examples(40))
@given(
    image=st.tuples(st.integers(1, 3), sizes, sizes),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    groups=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)),
    zeros=st.tuples(st.integers(-128, 127), st.integers(-128, 127)),
    bounds=st.tuples(st.sampled_from([-math.inf, -0.7, 0.0]), st.sampled_from([1.3, 6.0, math.inf])),
)
def test_convolutions_of_any_shape_give_the_same_integers(
    image: tuple[int, int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    groups: tuple[int, int, int],
    zeros: tuple[int, int],
    bounds: tuple[float, float],
) -> None:
    batch, height, width = image
    group, channels, filters = groups
    operator = Conv(strides=strides, pads=pads, group=group, lo=bounds[0], hi=bounds[1])

    def make(g: QuantizedGraph) -> Value:
        x = g.input("x", (batch, group * channels, height, width), Quantization.per_tensor(0.027, zeros[0]))
        w = g.weight((group * filters, channels, *kernel), 0)
        result = Quantization.per_tensor(0.11, zeros[1])
        return g.apply(operator, result, x, w, g.bias(group * filters))

    assert_same(graph_of(make), 0)


def network(g: QuantizedGraph) -> Value:
    """A residual block, a global average and a classifier with its Softmax in float."""
    x = g.input("x", IMAGE)
    y = g.apply(Conv(pads=(1, 1, 1, 1), lo=0.0), RELU, x, g.weight((6, 6, 3, 3), 0), g.bias(6))
    total = g.apply(Add(lo=0.0), RELU, x, y)
    pooled = g.apply(GlobalAveragePool(), Quantization.per_tensor(0.03, -128), total)
    flat = g.apply(Reshape(shape=(2, 6)), pooled.type.quantization, pooled)
    logits = g.apply(Gemm(), None, flat, g.weight((6, 5), 1), None)
    return g.builder.node(Softmax(axis=1), logits, name="probabilities")


def test_network_keeps_names_and_types_of_inputs_and_outputs() -> None:
    graph = graph_of(network)
    model = export_qdq(graph)
    (given_input,), (given_output,) = model.graph.input, model.graph.output
    assert (given_input.name, given_output.name) == ("x", "probabilities")
    for value, shape in ((given_input, IMAGE), (given_output, (2, 5))):
        assert value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        assert tuple(d.dim_value for d in value.type.tensor_type.shape.dim) == shape
    assert model.ir_version == 10
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 21)]
    onnx.checker.check_model(model, full_check=True)
    assert_same(graph, 1)


def test_names_of_integers_and_reals_are_those_of_the_graph() -> None:
    graph = graph_of(network)
    model = export_qdq(graph)
    produced = {output: node for node in model.graph.node for output in node.output}
    names = quantized_value_names(graph)
    assert set(names) == {v.name for v in graph.values() if v.type.is_quantized and not v.is_constant}
    for name, integers in names.items():
        assert produced[integers].op_type == "QuantizeLinear"
        assert produced[name].op_type == "DequantizeLinear"
        assert produced[name].input[0] == integers


def test_name_that_the_graph_has_already_is_not_taken_twice() -> None:
    g = QuantizedGraph()
    x = g.input("quantize_1", (2, 3))
    clash = g.builder.input("quantize_0__q", float_type(2, 3))
    y = g.apply(Relu(), RELU, x)
    graph = g.builder.finish(g.builder.node(Dequantize(), y, name="y"), clash)
    assert quantized_value_names(graph)["quantize_0"] == "quantize_0__q__1"
    assert_same(graph, 1)


def test_bias_scale_is_the_product_of_both_scales_in_float32() -> None:
    graph = graph_of(conv(Y))
    model = export_qdq(graph)
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    (bias,) = [n for n in model.graph.node if n.input[0] == "b"]
    weight = graph.value("w").type.quantization
    assert weight is not None
    expected = np.float32(INPUT.scale) * np.array(weight.scales, np.float32)
    assert arrays[bias.input[1]].dtype == np.float32
    assert np.array_equal(arrays[bias.input[1]], expected)
    assert not arrays[bias.input[2]].any()
    assert arrays["b"].dtype == np.int32
    (weights,) = [n for n in model.graph.node if n.output[0] == "w"]
    assert arrays[weights.input[0]].dtype == np.int8
    assert onnx.helper.get_node_attr_value(weights, "axis") == 0


def test_activations_are_uint8_unless_int8_is_asked_for() -> None:
    graph = graph_of(one(Relu(), RELU))
    for activations, dtype, zero in (("uint8", np.uint8, 117), ("int8", np.int8, -11)):
        model = export_qdq(graph, activations=activations)  # type: ignore[arg-type]
        arrays = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
        first = arrays[model.graph.node[0].input[2]]
        assert first.dtype == dtype and int(first) == zero


def test_weight_zero_points_are_kept() -> None:
    def make(g: QuantizedGraph) -> Value:
        data = g.weight((4, 6, 3, 3), 0).data
        scales = np.array([0.01, 0.02, 0.03, 0.04], np.float32)
        w = g.builder.constant("v", data, Quantization.per_channel(scales, 0, np.array([3, -5, 0, 7])))
        return g.apply(Conv(), Y, g.input("x", IMAGE), w, None)

    assert_same(graph_of(make), 1, optimize=False)


def test_same_graph_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    export_qdq(graph_of(network), first)
    export_qdq(graph_of(network), second)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "b.onnx"]


def test_graph_is_left_as_it_was() -> None:
    graph = graph_of(network)
    before = [repr(n) + repr(n.inputs) for n in graph.nodes]
    export_qdq(graph)
    assert [repr(n) + repr(n.inputs) for n in graph.nodes] == before


def test_integer_bias_without_quantized_operands_is_a_defect() -> None:
    graph = graph_of(conv(Y))
    node = next(n for n in graph.nodes if isinstance(n.operator, Conv))
    node.inputs = (graph.inputs[0], *node.inputs[1:])
    with pytest.raises(InternalError, match="quantized operands"):
        export_qdq(graph)


def test_profiling_nodes_are_left_out() -> None:
    g = QuantizedGraph()
    x = g.builder.input("x", float_type(2, 3))
    g.builder.append(QuantizationProfile(), x)
    graph = g.builder.finish(g.builder.node(Relu(), x, name="y"))
    assert "QuantizationProfile" not in {n.op_type for n in export_qdq(graph).graph.node}


def test_weights_with_equal_scales_load_where_exact_sums_are_asked_for(tmp_path: Path) -> None:
    """Exact sums without VNNI make int8 weights uint8, each with a zero point of its own."""
    random = np.random.default_rng(6)
    weights = {"v": random.permuted(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8), axis=0)}
    weights["w"] = random.permuted(weights["v"], axis=0)
    nodes = [helper.make_node("MatMul", ["x", "v"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])]
    model = qglow.load_model(save(tiny_model(nodes, {"x": (1, 8)}, ["y"], weights), tmp_path))
    data = {"x": random.standard_normal((32, 8)).astype(np.float32)}
    quantized = model.quantize(model.profile(data), repair=False)
    quantized.export_qdq(tmp_path / "m.qdq.onnx")
    one = {"x": data["x"][:1]}
    (found,) = session(tmp_path / "m.qdq.onnx", optimize=True).run(None, one)
    assert_close(found, quantized.compile(threads=1)(one)["y"], "onnxruntime")
