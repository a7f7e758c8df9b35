"""Real models, float and int8, give the same bits on every number of threads."""

from __future__ import annotations

import pytest

from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.toolchain import CompileOptions, compile_graph
from tests.end_to_end.zoo_flow import float_graph, inputs, quantized
from tests.runtimes import compare

COUNTS = (2, 3, 7)
TURNS = 3
"""Threads come sooner or later, so that calls are shared in several ways."""

CASES = [
    pytest.param("cifar10_resnet20", 4, marks=pytest.mark.slow),
    pytest.param("mlkws_ds_cnn_l", 4, marks=pytest.mark.slow),
    pytest.param("squeezenet1.1", 1, marks=pytest.mark.slow),
    pytest.param("mobilenetv2_tin202", 4, marks=pytest.mark.slow),
]


def results(graph: Graph, fed: dict[str, Array], threads: int) -> list[dict[str, Array]]:
    """Outputs of a few calls."""
    executable = compile_graph(graph, CompileOptions(threads=threads))
    assert executable.threads == threads
    return [executable(fed) for _ in range(TURNS)]


@pytest.mark.parametrize("kind", ["float", "int8"])
@pytest.mark.parametrize(("name", "batch"), CASES)
def test_bits_do_not_depend_on_threads(name: str, batch: int, kind: str) -> None:
    graph = float_graph(name, batch) if kind == "float" else quantized(name, batch).graph
    fed = inputs(name, batch)
    expected = results(graph, fed, 1)[0]
    for threads in COUNTS:
        for found in results(graph, fed, threads):
            for output, wanted in expected.items():
                compare(found[output], wanted, f"{output} on {threads} threads")
