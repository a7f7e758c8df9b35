"""Programs that take less memory: strips of rows and searched orders give the bits of the usual form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.core.types import ElementType, Quantization, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import interpret
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Relu
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.pool import AveragePool, MaxPool
from qglow.graph.ops.quantize import Rescale
from qglow.graph.ops.shape import Concat
from qglow.graph.verifier import verify_graph
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.passes import optimize
from qglow.instructions.plan import plan_memory
from qglow.lowering import ANY, lower
from qglow.lowering.lifetimes import peak
from qglow.lowering.order_search import search_order
from qglow.lowering.schedule import peak_bytes, schedule
from qglow.lowering.strips import compute_in_strips
from qglow.lowering.thrift import Thrift

INT8 = Quantization.per_tensor(0.05, 3)


def int8_conv(
    builder: GraphBuilder, random: np.random.Generator, x: Value, filters: int, size: int, operator: Conv
) -> Value:
    channels = x.type.shape[1] // operator.group
    w = random.integers(-127, 128, (filters, channels, size, size)).astype(np.int8)
    scales = np.full(filters, 0.01, np.float32)
    weights = builder.constant("w", w, Quantization.per_channel(scales, 0))
    bias = builder.constant("bias", random.integers(-500, 500, filters).astype(np.int32))
    return quantized(builder.node(operator, x, weights, bias))


def quantized(value: Value, parameters: Quantization = INT8) -> Value:
    value.type = TensorType(ElementType.INT8, value.type.shape, parameters)
    return value


def inverted_residual(random: np.random.Generator, rows: int, stride: int, dilation: int) -> Graph:
    """A small image, a wide middle of three nodes, and a sum with the image where shapes allow."""
    builder = GraphBuilder("wide")
    given_image = builder.input("x", TensorType(ElementType.INT8, (1, 4, rows, 6), INT8))
    image = int8_conv(builder, random, given_image, 4, 1, Conv())
    wide = int8_conv(builder, random, image, 32, 1, Conv(lo=0.0))
    depthwise = Conv(
        pads=(dilation,) * 4, strides=(stride, stride), dilations=(dilation, dilation), group=32, lo=0.0
    )
    wide = int8_conv(builder, random, wide, 32, 3, depthwise)
    wide = quantized(builder.node(Rescale(), wide), Quantization.per_tensor(0.06, -4))
    narrow = int8_conv(builder, random, wide, 4, 1, Conv())
    if narrow.type.shape == image.type.shape:
        narrow = quantized(builder.node(Add(), narrow, image))
    pooled = builder.node(MaxPool(kernel=(2, 2), pads=(1, 1, 0, 0)), narrow)
    return builder.finish(quantized(pooled, narrow.type.quantization or INT8))


@given(st.integers(4, 13), st.sampled_from([1, 2]), st.sampled_from([1, 2]), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_strips_change_no_bit_and_take_less(rows: int, stride: int, dilation: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    graph = inverted_residual(random, rows, stride, dilation)
    inputs = {"x": random.integers(-128, 128, (1, 4, rows, 6)).astype(np.int8)}
    wanted, before = interpret(graph, inputs), peak(graph)[0]
    done = compute_in_strips(graph, 1)
    verify_graph(graph, "after strips")
    assert done and peak(graph)[0] < before
    found = interpret(graph, inputs)
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_a_program_in_strips_has_a_smaller_arena_and_equal_results() -> None:
    random = np.random.default_rng(1)
    graph = inverted_residual(random, 16, 1, 1)
    inputs = {"x": random.integers(-128, 128, (1, 4, 16, 6)).astype(np.int8)}
    sizes, results = [], []
    for thrift in (None, Thrift(2500)):
        program = lower(graph, ANY, thrift)
        optimize(program)
        sizes.append(plan_memory(program).used)
        results.append(ArenaInterpreter(program).run(inputs))
        assert thrift is None or thrift.done
    assert sizes[1] < 0.6 * sizes[0]
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])


def test_strips_end_where_enough_fits() -> None:
    graph = inverted_residual(np.random.default_rng(0), 12, 1, 1)
    assert compute_in_strips(graph, peak(graph)[0]) == []
    assert len(compute_in_strips(graph, peak(graph)[0] - 1)) == 1


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pools_that_may_leave_the_image_stay_whole(ceil_mode: bool) -> None:
    builder = GraphBuilder("pool")
    x = builder.input("x", float_type(1, 3, 9, 9))
    wide = builder.node(Relu(), builder.node(AveragePool((3, 3), (2, 2), ceil_mode=ceil_mode), x))
    pooled = builder.node(AveragePool((2, 2), ceil_mode=ceil_mode), wide)
    graph = builder.finish(builder.node(Concat(axis=1), pooled, pooled))
    assert bool(compute_in_strips(graph, 1)) != ceil_mode


def late_reader() -> Graph:
    """Branches of which the one with the large middle has to come first, which no step shows by itself."""
    builder = GraphBuilder("branches")
    x = builder.input("x", float_type(1, 8))
    ends = []
    for middle in (64, 512, 128):
        w = [np.ones(shape, np.float32) for shape in ((8, middle), (middle, 32))]
        inner = builder.node(MatMul(), x, builder.constant("w", w[0]))
        ends.append(builder.node(MatMul(), inner, builder.constant("w", w[1])))
    joined = builder.node(Concat(axis=1), *ends)
    return builder.finish(builder.node(Relu(), joined))


def test_a_search_finds_an_order_that_greed_misses() -> None:
    greedy, searched = late_reader(), late_reader()
    assert schedule(searched, search=True) < schedule(greedy)
    assert peak_bytes(searched, search_order(searched)) == peak_bytes(searched, searched.nodes)
    verify_graph(searched, "after the search")
    given_row = {"x": np.ones((1, 8), np.float32)}
    found, wanted = interpret(searched, given_row), interpret(late_reader(), given_row)
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
