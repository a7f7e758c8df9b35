"""Properties that every pass keeps on random graphs."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.core.passes import Pass, PassLog, Pipeline
from qglow.core.types import Array
from qglow.graph.graph import Graph, names
from qglow.graph.interpreter import Interpreter
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.graph.verifier import verify_graph
from qglow.passes import ALL_PASSES, canonical_pipeline, canonicalize
from tests.fuzzing import examples
from tests.unit.graph.random_graphs import random_graph, random_inputs

RANDOMS = st.randoms(use_true_random=False)


def assert_close(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        scale = max(1.0, float(np.max(np.abs(array))))
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4 * scale, err_msg=name)


def assert_text_law(graph: Graph) -> None:
    text = print_graph(graph)
    assert print_graph(parse_graph(text, constant_data(graph))) == text


@pytest.mark.parametrize("cls", ALL_PASSES, ids=lambda cls: cls.name)
@settings(max_examples=examples(40))
@given(rng=RANDOMS)
def test_a_pass_keeps_results_interface_and_text(cls: type[Pass[Graph]], rng: random.Random) -> None:
    graph = random_graph(rng)
    verify_graph(graph, "random")
    result = graph.copy()
    Pipeline((cls(),)).run(result, verify_graph)
    assert names(result.inputs) == names(graph.inputs)
    assert names(result.outputs) == names(graph.outputs)
    assert_text_law(result)
    inputs = random_inputs(graph)
    assert_close(Interpreter(result).run(inputs), Interpreter(graph).run(inputs))


@settings(max_examples=examples(60))
@given(rng=RANDOMS)
def test_canonical_graphs_compute_the_same_and_stay_as_they_are(rng: random.Random) -> None:
    graph = random_graph(rng, length=20)
    before = print_graph(graph)
    result = canonicalize(graph)
    assert print_graph(graph) == before, "canonicalize changed its argument"
    assert_text_law(result)
    inputs = random_inputs(graph)
    assert_close(Interpreter(result).run(inputs), Interpreter(graph).run(inputs))
    assert print_graph(canonicalize(result)) == print_graph(result)


@settings(max_examples=examples(20))
@given(rng=RANDOMS, budget=st.integers(0, 8))
def test_a_budget_stops_after_that_many_rewrites_with_a_valid_graph(rng: random.Random, budget: int) -> None:
    graph = random_graph(rng)
    total = canonical_pipeline().run(graph.copy(), verify_graph).rewrites
    log = PassLog(budget=budget)
    result = canonicalize(graph, log)
    assert log.rewrites == min(budget, total)
    inputs = random_inputs(graph)
    assert_close(Interpreter(result).run(inputs), Interpreter(graph).run(inputs))


def test_the_canonical_pipeline_prints() -> None:
    assert str(canonical_pipeline()) == (
        "fold-constants,eliminate-dead-nodes,simplify-algebra,eliminate-common-subexpressions,"
        "min-max-to-clip,simplify-algebra,raise-gelu,raise-sigmoid,raise-hard-swish,raise-softmax,raise-layer-norm,"
        "raise-channel-shuffle,simplify-slices,sink-transposes,sink-reshapes,pad-into-conv,pad-into-pool,"
        "conv-to-gemm,matmul-add-to-gemm,sink-reshapes,matmul-add-to-gemm,expert-products,"
        "arithmetic-to-affine,fold-batchnorm,batchnorm-to-affine,join-affine,raise-swish,"
        "fuse-activation,eliminate-dead-nodes"
    )
