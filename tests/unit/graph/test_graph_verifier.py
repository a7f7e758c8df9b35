"""Every rule of a graph, broken once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from qglow.core.errors import VerificationError
from qglow.core.types import ElementType, Quantization, TensorType, float_type
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Add
from qglow.graph.text import parse_graph
from qglow.graph.verifier import verify_graph

TEXT = """
graph g (%x: float<2>) -> (%y) {
  %c: float<2> = constant {1.0, 2.0}
  %a: float<2> = Relu @relu (%x)
  %b: float<2> = Tanh @tanh (%a)
  %y: float<2> = Add @add (%b, %c)
}
"""


def swap_nodes(graph: Graph) -> None:
    graph.nodes = reversed(graph.nodes)


def forget_a_use(graph: Graph) -> None:
    graph.value("a").uses.clear()


def read_twice(graph: Graph) -> None:
    graph.value("a").uses[graph.node("add"), 2] = None


def repeat_a_value_name(graph: Graph) -> None:
    graph.value("b").name = "a"


def repeat_a_node_name(graph: Graph) -> None:
    graph.node("tanh").name = "relu"


def change_a_type(graph: Graph) -> None:
    graph.value("y").type = float_type(3)


def change_data(graph: Graph) -> None:
    graph.value("c").data = np.ones(2)


def compute_a_constant(graph: Graph) -> None:
    graph.value("a").data = np.ones(2, np.float32)


def steal_an_output(graph: Graph) -> None:
    graph.value("a").producer = graph.node("tanh")


def return_a_stranger(graph: Graph) -> None:
    graph.outputs = [Value("stranger", float_type(2))]


def add_an_operand(graph: Graph) -> None:
    graph.node("relu").inputs = (graph.value("x"), graph.value("x"))


def lose_an_operand(graph: Graph) -> None:
    graph.node("add").inputs = (graph.value("b"), None)


def mix_shapes(graph: Graph) -> None:
    wide = Value("wide", float_type(3), np.ones(3, np.float32))
    graph.node("add").inputs = (graph.value("b"), wide)


def add_an_output(graph: Graph) -> None:
    last = Node("more", Add(), [graph.value("b")] * 2, [Value("p", float_type(2)), Value("q", float_type(2))])
    graph.nodes.append(last)


def quantize_int64(graph: Graph) -> None:
    graph.value("y").type = TensorType(ElementType.INT64, (2,), Quantization.per_tensor(1.0, 0))


def quantize_another_integer(graph: Graph) -> None:
    graph.value("y").type = TensorType(ElementType.INT16, (2,), Quantization.per_tensor(1.0, 0))


def shift_int16(graph: Graph) -> None:
    wide = Quantization.per_tensor(1.0, 1, ElementType.INT16)
    graph.value("y").type = float_type(2).quantized(wide)


def quantize_beyond_int8(graph: Graph) -> None:
    graph.value("y").type = float_type(2).quantized(Quantization.per_tensor(1.0, 128))


def quantize_a_result_per_channel(graph: Graph) -> None:
    graph.value("y").type = float_type(2).quantized(Quantization.per_channel(np.ones(2), 0))


def feed_an_input(graph: Graph) -> None:
    graph.inputs.append(graph.value("c"))


BREAKS: list[tuple[Callable[[Graph], None], str]] = [
    (swap_nodes, "Add 'add': operand 'b' is not computed before it"),
    (forget_a_use, "value 'a': its use list differs"),
    (read_twice, "value 'a': its use list differs"),
    (repeat_a_value_name, "value 'a': another value has the same name"),
    (repeat_a_node_name, "node 'relu': another node has the same name"),
    (change_a_type, "Add 'add': output 'y' is float<3>, inferred is float<2>"),
    (change_data, r"constant 'c': data float64\[2\] does not fit type float<2>"),
    (compute_a_constant, "constant 'a': a node computes it too"),
    (steal_an_output, "Relu 'relu': output 'a' names another producer"),
    (return_a_stranger, "output 'stranger': nothing computes it"),
    (add_an_operand, "Relu 'relu': 2 operands, the operator takes 1"),
    (lose_an_operand, "Add 'add': operand rhs is missing"),
    (mix_shapes, "Add 'add': shapes .* do not broadcast"),
    (add_an_output, "Add 'more': 2 outputs, the operator gives 1"),
    (quantize_int64, "value 'y': i64 has parameters of i8"),
    (quantize_another_integer, "value 'y': i16 has parameters of i8"),
    (shift_int16, "value 'y': int16 has zero point 0"),
    (quantize_beyond_int8, "value 'y': a zero point is no i8"),
    (quantize_a_result_per_channel, "value 'y': only constants have parameters per channel"),
    (feed_an_input, "input 'c': an input is neither constant nor computed"),
]


def test_the_unbroken_graph_verifies() -> None:
    verify_graph(parse_graph(TEXT), "test")


@pytest.mark.parametrize(("broken", "message"), BREAKS, ids=[b.__name__ for b, _ in BREAKS])
def test_a_broken_rule_is_named_with_its_place(broken: Callable[[Graph], None], message: str) -> None:
    graph = parse_graph(TEXT)
    broken(graph)
    with pytest.raises(VerificationError, match=f"after pass p: graph g, {message}"):
        verify_graph(graph, "after pass p")


Q, P = "i8[S:0.5 O:1]", "i8[S:0.25 O:1]"
IMAGE = "<1 x 2 x 1 x 1>"


@pytest.mark.parametrize(
    ("inputs", "statement", "message"),
    [
        (f"%x: {Q}<2>", "%y: float<2> = Relu @n (%x)", "the result must be quantized"),
        (f"%x: {Q}<2>, %z: float<2>", f"%y: {Q}<2> = Add @n (%x, %z)", "operand rhs must be quantized"),
        ("%x: float<2>", f"%y: {Q}<2> = Relu @n (%x)", "operand x must be quantized"),
        (f"%x: {Q}{IMAGE}", f"%y: {P}{IMAGE} = MaxPool @n (%x) {{kernel=[1, 1]}}", "the same quantization"),
        (f"%x: {Q}<2>, %z: {P}<2>", f"%y: {Q}<4> = Concat @n (%x, %z) {{axis=0}}", "the same quantization"),
        (f"%x: {Q}<2>", f"%y: {Q}<2> = Softmax @n (%x)", "it stays float"),
        ("%x: float<2>", "%y: float<2> = Quantize @n (%x)", "takes float and gives integers"),
        ("%x: float<2>", "%y: float<2> = Dequantize @n (%x)", "takes integers and gives float"),
        (f"%x: {Q}<2>", "%y: float<2> = Rescale @n (%x)", "takes integers and gives integers"),
        (f"%x: {Q}<2 x 2>, %w: float<2 x 2>", f"%y: {Q}<2 x 2> = Gemm @n (%x, %w)", "both be quantized"),
        (
            f"%x: {Q}<2 x 2>, %w: {Q}<2 x 2>, %b: float<2>",
            f"%y: {Q}<2 x 2> = Gemm @n (%x, %w, %b)",
            "must be i32<2>",
        ),
        (
            f"%x: {Q}<1 x 2>, %s: {Q}<2>",
            f"%y: {Q}<1 x 2> = Affine @n (%x, %s, %s)",
            "operand scale must be float",
        ),
    ],
)
def test_quantized_forms_that_no_policy_allows(inputs: str, statement: str, message: str) -> None:
    graph = parse_graph(f"graph g ({inputs}) -> (%y) {{\n{statement}\n}}")
    with pytest.raises(VerificationError, match=message):
        verify_graph(graph, "test")


def test_weights_are_quantized_along_their_output_channels() -> None:
    text = (
        "graph g (%x: i8[S:1.0 O:0]<1 x 2>) -> (%y) {\n"
        "%w: i8[S:{1.0,2.0} O:0 A:0]<2 x 2> = constant {1, 2, 3, 4}\n"
        "%y: float<1 x 2> = Gemm @n (%x, %w)\n}"
    )
    with pytest.raises(VerificationError, match="along axis 0, output channels are axis 1"):
        verify_graph(parse_graph(text), "test")
    verify_graph(parse_graph(text.replace("A:0", "A:1")), "test")
