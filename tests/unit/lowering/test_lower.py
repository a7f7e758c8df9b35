"""Lowering: what instructions a graph becomes."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.errors import UnsupportedError
from qglow.core.types import ElementType, Quantization, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Relu
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.pool import GlobalAveragePool, MaxPool
from qglow.graph.ops.quantize import Dequantize, QuantizationProfile, Quantize
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.instructions.passes import optimize
from qglow.instructions.program import Program
from qglow.instructions.text import print_program
from qglow.lowering import ANY, Backend, lower
from qglow.lowering.schedule import peak_bytes, schedule


def opcodes(program: Program) -> list[str]:
    """Opcodes of the code that computes."""
    administrative = {"allocactivation", "deallocactivation", "tensorview"}
    return [i.operation.opcode for i in program.code if i.operation.opcode not in administrative]


def conv(builder: GraphBuilder, x: object, channels: int, filters: int) -> object:
    w = builder.constant("w", np.ones((filters, channels, 1, 1), np.float32))
    return builder.node(Conv(), x, w, None)  # type: ignore[arg-type]


def test_gemm_sigmoid_is_two_instructions_and_in_place() -> None:
    builder = GraphBuilder("mymodel")
    x = builder.input("input_1", float_type(3, 10))
    w = builder.constant("classifier_0_weight", np.ones((10, 5), np.float32))
    bias = builder.constant("classifier_0_bias", np.ones(5, np.float32))
    y = builder.node(Gemm(), x, w, bias)
    program = lower(builder.finish(builder.node(Sigmoid(), y, name="output_1")))
    optimize(program)
    assert (
        print_program(program)
        == """\
function mymodel
declare {
  %classifier_0_bias   = WeightVar float<5>      const    // size: 20  // users: @in 0
  %classifier_0_weight = WeightVar float<10 x 5> const    // size: 200 // users: @in 0
  %input_1             = WeightVar float<3 x 10> mutable  // size: 120 // users: @in 0
  %output_1            = WeightVar float<3 x 5>  mutable  // size: 60  // users: @out 0, @in 1, @out 1
  ; size = 400 bytes
}
code {
  0 %Gemm_0    = fullyconnected @out %output_1, @in %input_1, @in %classifier_0_weight, @in %classifier_0_bias
  1 %Sigmoid_0 = sigmoid @out %output_1, @in %output_1
}
"""
    )


def test_a_graph_of_constants_alone_is_copies() -> None:
    builder = GraphBuilder("constants")
    builder.input("x", float_type(2))
    program = lower(builder.finish(builder.constant("c", np.array([1, 2], np.float32))))
    assert opcodes(program) == ["copy"]


def test_images_are_transposed_once() -> None:
    builder = GraphBuilder("chain")
    value: object = builder.input("x", float_type(1, 3, 8, 8))
    for channels, filters in ((3, 4), (4, 5), (5, 6)):
        value = conv(builder, value, channels, filters)
    pooled = builder.node(GlobalAveragePool(), value)  # type: ignore[arg-type]
    program = lower(builder.finish(builder.node(Reshape(shape=(1, 6)), pooled)))
    optimize(program)
    assert opcodes(program).count("transpose") == 1
    assert opcodes(program)[0] == "transpose"


def test_one_channel_images_are_not_transposed() -> None:
    builder = GraphBuilder("grey")
    x = builder.input("x", float_type(2, 1, 8, 8))
    program = lower(builder.finish(conv(builder, x, 1, 1)))  # type: ignore[arg-type]
    optimize(program)
    assert opcodes(program) == ["convolution"]


def test_int8_images_are_quantized_before_they_are_transposed() -> None:
    builder = GraphBuilder("border")
    x = builder.input("x", float_type(1, 3, 8, 8))
    kind = x.type.quantized(Quantization.per_tensor(0.1, 3))
    q = builder.node(Quantize(), x, output_types=[kind])
    pooled = builder.node(MaxPool(kernel=(2, 2)), q, output_types=[kind.with_shape((1, 3, 7, 7))])
    program = lower(builder.finish(builder.node(Dequantize(), pooled)))
    assert opcodes(program)[:2] == ["quantize", "transpose"]


def test_a_transpose_in_the_model_moves_nothing_where_the_image_order_is_asked() -> None:
    builder = GraphBuilder("layout")
    x = builder.input("x", float_type(1, 8, 8, 3))
    turned = builder.node(Transpose(perm=(0, 3, 1, 2)), x)
    program = lower(builder.finish(conv(builder, turned, 3, 4)))  # type: ignore[arg-type]
    optimize(program)
    assert opcodes(program)[0] == "convolution"


def test_decomposed_operator_keeps_its_value() -> None:
    program = lower(averaged())
    assert "averagepool" in opcodes(program)
    assert "mean" in {b.name for b in program.all_buffers()} | {b.root.name for b in program.all_buffers()}


def test_a_back_end_that_keeps_an_operator_whole_has_to_lower_it() -> None:
    whole = Backend("whole", frozenset({GlobalAveragePool}))
    with pytest.raises(UnsupportedError, match="GlobalAveragePool 'GlobalAveragePool_0'"):
        lower(averaged(), whole)


def averaged() -> Graph:
    builder = GraphBuilder("average")
    x = builder.input("x", float_type(1, 3, 4, 4))
    return builder.finish(builder.node(GlobalAveragePool(), x, name="mean"))


def test_profiles_become_state() -> None:
    builder = GraphBuilder("profiled")
    x = builder.input("x", float_type(2, 3, 4, 4))
    y = builder.node(Relu(), x, name="y")
    builder.append(QuantizationProfile(), y)
    program = lower(builder.finish(y))
    assert [b.name for b in program.state()][:2] == ["y.counts", "y.range"]
    assert program.buffer("y.channel_sums").type.shape == (2, 3)
    assert program.buffer("y.counts").type.element is ElementType.INT64


def test_a_computed_operand_spreads_without_a_copy() -> None:
    builder = GraphBuilder("broadcast")
    a, b = builder.input("a", float_type(1, 3, 4, 4)), builder.input("b", float_type(1, 3, 1, 1))
    program = lower(builder.finish(builder.node(Add(), a, b)))
    optimize(program)
    assert opcodes(program) == ["elementadd"]


def test_constants_spread_in_place_unless_runs_would_be_short() -> None:
    builder = GraphBuilder("constants")
    value = builder.input("x", float_type(1, 3, 8, 20))
    for shape in ((), (20,), (3, 1, 1)):
        value = builder.node(Add(), value, builder.constant("c", np.ones(shape, np.float32)))
    value = builder.node(Reshape(shape=(60, 8)), value)
    value = builder.node(Add(), value, builder.constant("short", np.ones(8, np.float32)))
    program = lower(builder.finish(value))
    shapes = [c.type.shape for c in program.constants]
    assert shapes == [(1, 1, 1, 1), (1, 1, 1, 20), (1, 3, 1, 1), (60, 8)]


def test_stacks_of_products_are_one_instruction() -> None:
    builder = GraphBuilder("batched")
    a, b = builder.input("a", float_type(2, 3, 4)), builder.input("b", float_type(2, 4, 5))
    program = lower(builder.finish(builder.node(MatMul(), a, b)))
    assert opcodes(program) == ["matmul"]


def test_one_known_index_is_a_slice() -> None:
    builder = GraphBuilder("chosen")
    x, index = builder.input("x", float_type(2, 3, 4)), builder.constant("i", np.array(-1))
    program = lower(builder.finish(builder.node(Gather(axis=1), x, index)))
    assert opcodes(program)[0] == "extract" and "gather" not in opcodes(program)


def test_an_index_out_of_range_is_refused() -> None:
    builder = GraphBuilder("beyond")
    x, index = builder.input("x", float_type(2, 3, 4)), builder.constant("i", np.array(3))
    with pytest.raises(UnsupportedError, match="index 3 is out of range"):
        lower(builder.finish(builder.node(Gather(axis=1), x, index)))


def test_lowering_leaves_the_graph_as_it_is() -> None:
    graph = averaged()
    lower(graph, ANY)
    assert [n.operator.name for n in graph.nodes] == ["GlobalAveragePool"]


def test_schedule_never_raises_the_peak() -> None:
    builder = GraphBuilder("branches")
    x = builder.input("x", float_type(1, 8))
    wide = [
        builder.node(Gemm(), x, builder.constant("w", np.ones((8, 100), np.float32)), None) for _ in range(4)
    ]
    narrow = [
        builder.node(Gemm(), v, builder.constant("u", np.ones((100, 2), np.float32)), None) for v in wide
    ]
    total = narrow[0]
    for value in narrow[1:]:
        total = builder.node(Add(), total, value)
    graph = builder.finish(total)
    before = peak_bytes(graph, graph.nodes)
    after = schedule(graph)
    assert after < before
    assert peak_bytes(graph, graph.nodes) == after
