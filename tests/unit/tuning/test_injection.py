"""Errors put into a float program."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter
from qglow.tuning.injection import Injection
from tests.unit.profiling.networks import residual_network
from tests.unit.tuning.networks import outputs, runs


def value_of(graph: Graph, name: str) -> Value:
    return next(value for value in graph.values() if value.name == name)


@pytest.fixture(scope="module")
def network() -> Graph:
    return residual_network()


def test_without_errors_it_is_the_float_program_and_the_graph_stays(network: Graph) -> None:
    before = [node.name for node in network.nodes]
    injection = Injection(network, [value_of(network, name) for name in ("x", "depthwise", "y")])
    [inputs] = runs(1)
    found = injection(inputs, {})
    assert list(found) == [value.name for value in network.outputs]
    assert np.allclose(found["y"], outputs(network, inputs), rtol=1e-5, atol=1e-6)
    assert [node.name for node in network.nodes] == before and len(network.inputs) == 1


def test_an_error_reaches_every_reader(network: Graph) -> None:
    """Of a value that two nodes read, the error is that of a changed value."""
    stem = value_of(network, "depthwise")
    injection = Injection(network, [stem])
    [inputs] = runs(1)
    error = np.random.default_rng(0).normal(size=stem.type.shape).astype(np.float32)
    taps: dict[str, np.ndarray] = {}
    Interpreter(network).run(inputs, taps=lambda value, array: taps.__setitem__(value.name, array))
    changed = taps["depthwise"] + error
    w, bias = value_of(network, "w2").data, value_of(network, "b2").data
    assert w is not None and bias is not None
    product = np.einsum("oi,nihw->nohw", w[:, :, 0, 0], changed) + bias[None, :, None, None]
    mean = (np.maximum(product, 0) + changed).mean(axis=(2, 3))
    w, bias = value_of(network, "w3").data, value_of(network, "b3").data
    assert w is not None and bias is not None
    assert np.allclose(injection(inputs, {"depthwise": error})["y"], mean @ w + bias, atol=1e-4)


def test_errors_of_inputs_and_outputs_count_too(network: Graph) -> None:
    injection = Injection(network, [value_of(network, "x"), value_of(network, "y")])
    [inputs] = runs(1)
    base = injection(inputs, {})
    shift = np.full((1, 4), 0.5, np.float32)
    assert injection.distance(inputs, {"y": shift}, base) == pytest.approx(1.0, rel=1e-5)
    noise = np.full((1, 3, 6, 6), 0.25, np.float32)
    moved = outputs(network, {"x": inputs["x"] + noise}) - outputs(network, inputs)
    found = injection.distance(inputs, {"x": noise}, base)
    assert found == pytest.approx(float(np.sum(moved.astype(np.float64) ** 2)), rel=1e-3)
