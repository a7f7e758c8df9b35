"""16-bit floats are candidates where they are predicted to be faster than float32, and hold the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.linear import Gemm
from qglow.kernels.emit.target import VectorTarget
from qglow.profiling.engine import InterpreterEngine
from qglow.profiling.histogram import ValueProfile
from qglow.profiling.profiler import profile
from qglow.profiling.samples import Sample
from qglow.quantization.pipeline import quantize_with
from qglow.recipe.schema import Recipe
from qglow.targets import capabilities
from qglow.targets.registry import find_or_select, machine_for_estimates
from qglow.tuning.halves import Half, faster_halves
from qglow.tuning.mix import Mix, with_mix
from tests.unit.profiling.networks import MODEL


def dense(rows: int = 1, scale: float = 0.02) -> Graph:
    """A product of many weights, and a sum."""
    random = np.random.default_rng(3)
    b = GraphBuilder("dense")
    x = b.input("x", float_type(rows, 512))
    weights = b.constant("w", random.normal(size=(512, 512)).astype(np.float32) * np.float32(scale))
    y = b.node(Gemm(), x, weights, b.constant("b", np.zeros(512, np.float32)), name="product")
    return b.finish(b.node(Add(), y, x, name="y"))


def convolution() -> Graph:
    b = GraphBuilder("convolution")
    x = b.input("x", float_type(1, 8, 16, 16))
    weights = b.constant("w", np.full((8, 8, 3, 3), 0.01, np.float32))
    conv = Conv(pads=(1, 1, 1, 1))
    return b.finish(b.node(conv, x, weights, b.constant("b", np.zeros(8, np.float32)), name="y"))


def seen(graph: Graph) -> dict[str, ValueProfile]:
    random = np.random.default_rng(4)
    shape = graph.inputs[0].type.shape
    arrays = [random.normal(size=shape[1:]).astype(np.float32) for _ in range(4 * shape[0])]
    given = [Sample(str(i), {"x": array}) for i, array in enumerate(arrays)]
    engine = InterpreterEngine(lambda batch: graph)
    found = profile(graph, iter(given), engine, model=MODEL, batch_size=shape[0])
    return dict(found.check_matches(graph))


def halves(graph: Graph, target: VectorTarget | None = None) -> dict[str, Half]:
    statistics = seen(graph)

    def made(mix: Mix) -> Graph:
        return quantize_with(graph, statistics, 4, with_mix(Recipe(), mix)).graph

    names = [node.name for node in graph.nodes]
    return faster_halves(graph, names, made, statistics, target or machine_for_estimates())


@pytest.fixture
def vectors() -> VectorTarget:
    """An instruction set that converts float16, whether or not the host has it."""
    return capabilities.machine(find_or_select("avx512vnni"))


def only(found: dict[str, Half]) -> Half:
    [half] = found.values()
    return half


def test_a_product_of_one_row_is_faster_in_float16(vectors: VectorTarget) -> None:
    graph = dense()
    found = halves(graph, vectors)
    [product] = [node.name for node in graph.nodes if node.operator.name == "Gemm"]
    assert list(found) == [product] and found[product].element == "float16"


def test_many_rows_and_convolutions_are_not(vectors: VectorTarget) -> None:
    assert halves(dense(64), vectors) == {}
    assert halves(convolution(), vectors) == {}


def test_what_float16_does_not_hold_is_bfloat16(vectors: VectorTarget) -> None:
    assert only(halves(dense(scale=600.0), vectors)).element == "bfloat16", "results of 13,000 times 4"
    assert only(halves(dense(scale=50000.0), vectors)).element == "bfloat16", "weights"


def test_an_instruction_set_without_conversions_has_none() -> None:
    assert halves(dense(), capabilities.machine(find_or_select("generic"))) == {}
