"""Outputs of samples, cut out of those of a batch."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.errors import DataError
from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.elementwise import Relu
from qglow.graph.ops.shape import Reshape
from qglow.report.evaluation import run_over_data
from qglow.toolchain import CompileOptions, compile_graph
from tests.runtimes import PLAIN

ROWS = np.arange(12, dtype=np.float32).reshape(2, 6)


def network(batch: int, *shape: int) -> Graph:
    """x [batch, 6] in another shape."""
    b = GraphBuilder("network")
    x = b.input("x", float_type(batch, 6))
    return b.finish(b.node(Relu(), b.node(Reshape(shape=shape), x), name="y"))


def outputs(graph: Graph) -> list[np.ndarray]:
    program = compile_graph(graph, CompileOptions(isa=PLAIN))
    return [found["y"] for _, found in run_over_data(program, {"x": ROWS})]


@pytest.mark.parametrize(
    ("batch", "shape", "wanted"),
    [(2, (2, 6), (6,)), (1, (1, 6), (6,)), (2, (4, 3), (2, 3)), (1, (3, 2), (3, 2)), (1, (6,), (6,))],
)
def test_each_sample_has_its_part(batch: int, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    found = outputs(network(batch, *shape))
    assert [array.shape for array in found] == [wanted, wanted]
    assert [array.ravel().tolist() for array in found] == ROWS.tolist()


def test_what_mixes_samples_is_refused() -> None:
    with pytest.raises(DataError, match=r"output 'y' of shape \[3, 4\] has no batch axis"):
        outputs(network(2, 3, 4))
