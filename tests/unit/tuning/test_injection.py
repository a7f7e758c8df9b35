"""Errors put into a float program."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add
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
    found = injection.run(inputs).outputs
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
    assert np.allclose(injection.run(inputs).with_error("depthwise", error)["y"], mean @ w + bias, atol=1e-4)


def test_errors_of_inputs_and_outputs_count_too(network: Graph) -> None:
    injection = Injection(network, [value_of(network, "x"), value_of(network, "y")])
    [inputs] = runs(1)
    run = injection.run(inputs)
    shift = np.full((1, 4), 0.5, np.float32)
    assert run.distance("y", shift) == pytest.approx(1.0, rel=1e-5)
    noise = np.full((1, 3, 6, 6), 0.25, np.float32)
    moved = outputs(network, {"x": inputs["x"] + noise}) - outputs(network, inputs)
    found = run.distance("x", noise)
    assert found == pytest.approx(float(np.sum(moved.astype(np.float64) ** 2)), rel=1e-3)


def test_stages_give_what_one_program_gives() -> None:
    graph, [inputs] = deep_network(), runs_of_images()
    places = [value for node in graph.nodes for value in node.outputs]
    whole, staged = (Injection(graph, places, stages=stages) for stages in (1, 4))
    assert len(staged._stages) > 2 and len(whole._stages) == 1
    random = np.random.default_rng(1)
    first, second = whole.run(inputs), staged.run(inputs)
    for place in places:
        error = random.normal(scale=0.1, size=place.type.shape).astype(np.float32)
        found, wanted = second.with_error(place.name, error), first.with_error(place.name, error)
        for name in wanted:
            assert np.allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)
        assert second.distance(place.name, error) == pytest.approx(
            first.distance(place.name, error), rel=1e-3, abs=1e-6
        )
        assert second.distance(place.name, np.zeros_like(error)) == 0.0


def deep_network() -> Graph:
    """Convolutions of a million multiply-adds each, with a shortcut over two of them and two outputs."""
    random = np.random.default_rng(0)
    b = GraphBuilder("deep")
    x = b.input("x", float_type(1, 8, 32, 32))
    values = [x]
    for index in range(6):
        w = b.constant(
            f"w{index}",
            random.normal(scale=0.1, size=(16, values[-1].type.shape[1], 3, 3)).astype(np.float32),
        )
        values.append(b.node(Conv(lo=0.0, pads=(1, 1, 1, 1)), values[-1], w, None, name=f"conv{index}"))
    total = b.node(Add(), values[3], values[6], name="total")
    return b.finish(values[2], total)


def runs_of_images() -> list[dict[str, np.ndarray]]:
    return [{"x": np.random.default_rng(2).normal(size=(1, 8, 32, 32)).astype(np.float32)}]
