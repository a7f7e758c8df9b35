"""The text form: what is printed is parsed, and what cannot be parsed says where."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.core.errors import TextError
from qglow.core.types import Array, Quantization, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.elementwise import Add, Relu
from qglow.graph.ops.quantize import Dequantize
from qglow.graph.ops.shape import Concat
from qglow.graph.text import constant_data, constant_digest, parse_graph, print_graph
from qglow.graph.verifier import verify_graph
from tests.fuzzing import examples
from tests.unit.graph.random_graphs import random_graph, random_inputs

FILES = sorted((Path(__file__).parents[2] / "text" / "graph").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_graphs_print_as_they_are_written(path: Path) -> None:
    text = path.read_text()
    graph = parse_graph(text)
    verify_graph(graph, "golden")
    assert print_graph(graph) == text


def test_there_are_golden_graphs() -> None:
    assert {path.stem for path in FILES} >= {"mymodel", "quantized", "names"}


@settings(max_examples=examples(40))
@given(rng=st.randoms(use_true_random=False))
def test_random_graphs_come_back_and_compute_the_same(rng: random.Random) -> None:
    graph = random_graph(rng)
    text = print_graph(graph)
    restored = parse_graph(text, constant_data(graph))
    assert print_graph(restored) == text
    verify_graph(restored, "restored")
    inputs = random_inputs(graph)
    expected = Interpreter(graph).run(inputs)
    for name, array in Interpreter(restored).run(inputs).items():
        np.testing.assert_array_equal(array, expected[name])


def with_constant(data: Array, quantization: Quantization | None = None) -> Graph:
    builder = GraphBuilder("g")
    value = builder.constant("c", data, quantization)
    return builder.finish(builder.node(Concat(axis=0), value, value, output_types=None))


ARRAYS = {
    "special floats": np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.4e38, 0.1], np.float32),
    "doubles": np.array([0.1, 1 / 3, -5e-324]),
    "integers": np.array([-(2**63), 2**63 - 1], np.int64),
    "int8": np.array([-128, 127], np.int8),
    "booleans": np.array([True, False]),
    "nothing": np.zeros((0, 3), np.float32),
    "all equal": np.full((4, 5), 0.1, np.float32),
    "all false": np.zeros(40, np.bool_),
    "all zero integers": np.zeros(40, np.int64),
    "signs of zero": np.array([0.0, -0.0] * 10, np.float32),
    "many": np.arange(40, dtype=np.float32).reshape(5, 8),
}


@pytest.mark.parametrize("data", ARRAYS.values(), ids=ARRAYS)
def test_constants_come_back_bit_for_bit(data: Array) -> None:
    graph = with_constant(data)
    text = print_graph(graph)
    restored = parse_graph(text, constant_data(graph)).constants()[0].data
    assert restored is not None and restored.dtype == data.dtype and restored.shape == data.shape
    assert restored.tobytes() == data.tobytes()


def test_small_constants_are_written_out_equal_ones_splat_and_others_named_by_content() -> None:
    assert "constant {0.1, 2.0}" in print_graph(with_constant(np.array([0.1, 2], np.float32)))
    assert "constant splat 0.1" in print_graph(with_constant(ARRAYS["all equal"]))
    assert f"constant #{constant_digest(ARRAYS['many'])}" in print_graph(with_constant(ARRAYS["many"]))
    assert constant_digest(ARRAYS["many"]) != constant_digest(ARRAYS["many"].reshape(8, 5))


@pytest.mark.parametrize(
    "digest", ["0000000000000000", "12e4567800000000", "1e5f00000000000a", "abcdefabcdefabcd"]
)
def test_digests_of_any_digits_are_read(digest: str) -> None:
    text = f"graph g () -> (%c) {{\n  %c: float<2> = constant #{digest}\n}}\n"
    data = np.array([1.0, 2.0], np.float32)
    assert parse_graph(text, {digest: data}).outputs[0].data is data
    with pytest.raises(TextError, match=f"no data is given for constant #{digest}"):
        parse_graph(text)


def test_names_that_are_not_identifiers_are_quoted() -> None:
    builder = GraphBuilder("1e-05")
    x = builder.input('a "b"\n', float_type(2))
    y = builder.node(Add(), x, builder.constant("758", np.ones(2, np.float32)), name="inf")
    graph = builder.finish(builder.node(Relu(), y, name="é/λ:0"))
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
    assert [v.name for v in parse_graph(text).values()] == [v.name for v in graph.values()]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("graph g () -> () {\n  %a: float<2> = Nothing @n ()\n}", 2, "unknown operator 'Nothing'"),
        ("graph g () -> () {\n  %a: float<2> = Relu @n (%b)\n}", 2, "%b is not declared before"),
        ("graph g () -> () {\n  %a: float<2> = Relu @n (%a)\n}", 2, "%a is not declared before"),
        ("graph g (%a: float<2>, %a: float<2>) -> () {\n}", 1, "%a is declared twice"),
        ("graph g () -> (%y) {\n}", 2, "%y is not declared"),
        ("graph g () -> () {\n  %a: float<2> = constant {1.0}\n}", 2, "1 elements for float<2>"),
        ("graph g () -> () {\n  %a: i8<1> = constant {128}\n}", 2, "128 is no i8"),
        ("graph g () -> () {\n  %a: i8<1> = constant {1.5}\n}", 2, "expected an integer"),
        ("graph g () -> () {\n  %a: bool<1> = constant {3}\n}", 2, "3 is no bool"),
        ("graph g (%x: float<2>) -> () {\n  %a: float<2> = Clip @n (%x) {low=1.0}\n}", 2, "no attribute low"),
        ('graph g (%x: float<2>) -> () {\n  %a: float<2> = Cast @n (%x) {to="word"}\n}', 2, "Cast"),
        ("graph g () -> () {\n} graph", 2, "text after the end"),
        ("graph g () -> () {\n", 2, "found 'end of text'"),
    ],
)
def test_what_cannot_be_parsed_says_where(text: str, line: int, message: str) -> None:
    with pytest.raises(TextError, match=message) as caught:
        parse_graph(text)
    assert caught.value.line == line


def test_long_lists_of_scales_are_named_by_digest() -> None:
    scales = np.linspace(0.01, 0.5, 40).astype(np.float32)
    weights = np.ones((40, 2), np.int8)
    builder = GraphBuilder("scales")
    w = builder.constant("w", weights, Quantization.per_channel(scales, 0))
    graph = builder.finish(builder.node(Dequantize(), w))
    text = print_graph(graph)
    assert "S:#" in text and max(len(line) for line in text.splitlines()) < 120
    parsed = parse_graph(text, constant_data(graph))
    assert parsed.value("w").type == w.type
    assert print_graph(parsed) == text
    with pytest.raises(TextError, match="no data is given for scales"):
        parse_graph(text)
