"""The mean error of rounded weights leaves the result, whatever the shape of the input."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.shape import Reshape
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.pipeline import quantize_with
from qglow.recipe.schema import Recipe

SAMPLES, TOKENS = 16, 6
DATA = np.random.default_rng(0).normal(4.0, 0.5, size=(SAMPLES, TOKENS, 32)).astype(np.float32)


def network() -> Graph:
    random = np.random.default_rng(1)
    b = GraphBuilder("g")
    x = b.input("x", float_type(1, TOKENS, 32))
    # A large weight a column leaves few levels to the others, whose errors then show in the mean.
    w = random.normal(size=(32, 5)).astype(np.float32)
    w[0] = 40.0
    rows = b.node(Reshape((TOKENS, 32)), x, name="rows")
    return b.finish(b.node(Gemm(), rows, b.constant("w", w), name="y"))


def run(graph: Graph) -> Array:
    program = Interpreter(graph)
    return np.stack([program.run({"x": sample[None]})["y"] for sample in DATA])


def statistics(graph: Graph) -> dict[str, ValueProfile]:
    found: dict[str, ValueProfile] = {}

    def tap(value: object, array: np.ndarray) -> None:
        name: str = value.name  # type: ignore[attr-defined]
        found.setdefault(name, ValueProfile.of_shape(array.shape)).observe(array)

    for sample in DATA:
        Interpreter(graph).run({"x": sample[None]}, tap)
    return found


def test_every_row_of_a_sample_counts_in_the_mean() -> None:
    graph = network()
    expected = run(graph)
    off = {}
    for correct in (False, True):
        made = quantize_with(graph, statistics(graph), SAMPLES, Recipe(correct_bias=correct))
        off[correct] = np.abs(np.mean(run(made.graph) - expected, axis=(0, 1))).max()
    assert off[True] < 0.2 * off[False]
