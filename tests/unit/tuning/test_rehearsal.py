"""Float programs that rehearse what an int8 program does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.core.types import Array, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import interpret
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Mul
from qglow.graph.text import parse_graph
from qglow.graph.verifier import verify_graph
from qglow.profiling.samples import Sample
from qglow.quantization.pipeline import QuantizedGraph
from qglow.recipe.schema import Recipe
from qglow.targets.native.stepped import SteppedCode
from qglow.tuning.rehearsal import Parameters, Rehearsal, _copied_for, rounded_values
from qglow.tuning.rehearsed_constants import Exchange
from qglow.tuning.self_check import float_runs
from tests.unit.importer.tiny import save, tiny_model
from tests.unit.profiling.networks import residual_network
from tests.unit.profiling.networks import samples as small_images
from tests.unit.tuning.repair_networks import comb, made, offsets, outliers
from tests.unit.tuning.test_harm import images, shifted, torn

GRAPH = """graph g (%x: float<1 x 3>) -> (%z) {
  %a: float<1 x 3> = Relu @"n0" (%x)
  %b: float<1 x 3> = Relu @"n1" (%x)
  %c: float<1 x 3> = Relu @"n2" (%x)
  %d: float<1 x 3> = Add @"n3" (%a, %b)
  %z: float<1 x 3> = Add @"n4" (%c, %d)
}
"""


def test_readers_of_a_value_may_have_copies_of_their_own() -> None:
    """A value that is rounded at three scales has two copies."""
    graph = parse_graph(GRAPH)
    (x,) = graph.inputs
    first, second, _third = x.users()
    copies = [_copied_for(graph, x, [node]) for node in (first, second)]
    verify_graph(graph, "with copies")
    assert len({copy.name for copy in copies}) == 2
    data = np.array([[-1.5, 0.0, 2.0]], np.float32)
    np.testing.assert_array_equal(interpret(graph, {"x": data})["z"], 3 * np.maximum(data, 0))


def parameters_of(result: QuantizedGraph) -> Parameters:
    values = rounded_values(result.source, result.graph)
    kinds = {name: value.type.quantization for name, value in values.items()}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def equal(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


NETWORKS: list[tuple[Callable[[], Graph], Callable[[int], list[Sample]]]] = [
    (comb, offsets),
    (outliers, small_images),
    (residual_network, small_images),
    (torn, images),
    (shifted, images),
]


@pytest.mark.parametrize(("network", "drawn"), NETWORKS)
def test_the_float_graph_runs_by_the_code_of_its_rehearsal(
    network: Callable[[], Graph], drawn: Callable[[int], list[Sample]]
) -> None:
    """Also where channels are scaled, and a bias is corrected that there is not."""
    kept = drawn(4)
    quantizer = made(network(), kept)
    result = quantizer(Recipe())
    rehearsal = Rehearsal(result.source, result.graph, quantizer.options)
    code = rehearsal.exact(result.source, quantizer.graph)
    assert code is not None
    runs = float_runs(quantizer.graph, kept, quantizer.options)
    for inputs, outputs in zip(runs.inputs, runs.outputs, strict=True):
        equal(code(inputs, {}), outputs)


def test_another_float_graph_has_code_of_its_own() -> None:
    kept = small_images(4)
    quantizer = made(residual_network(), kept)
    result = quantizer(Recipe())
    rehearsal = Rehearsal(result.source, result.graph, quantizer.options)
    assert rehearsal.exact(result.source, outliers()) is None


@pytest.mark.parametrize("network", [torn, shifted])
def test_runs_go_on_from_what_an_earlier_one_left(
    network: Callable[[], Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is rounded, and whatever constants the code has; with less work."""
    kept = images(4)
    quantizer = made(network(), kept)
    result, other = quantizer(Recipe()), quantizer(Recipe(correct_bias=False, per_tensor=True))
    graphs, whole = (result.source, result.graph), parameters_of(result)
    rehearsal = Rehearsal(*graphs, quantizer.options)
    instead = {node.name: node for node in other.graph.nodes}
    random, names = np.random.default_rng(1), sorted(whole)
    inputs = float_runs(quantizer.graph, kept, quantizer.options).inputs
    steps = [0, 0]
    step = SteppedCode._step

    def counted(code: SteppedCode, *given: object) -> None:
        steps[is_kept] += 1
        step(code, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(SteppedCode, "_step", counted)
    for number in range(40):
        drawn = random.choice(sorted(instead), size=number % 3, replace=False).tolist()
        exchanges = Exchange(instead={n: instead[n] for n in drawn}), Exchange(exact=drawn)
        code = rehearsal.exchanged(*graphs, exchanges[number % 2])
        assert code is not None
        left_out = random.choice(names, size=number % 4, replace=False).tolist()
        parameters = {name: kind for name, kind in whole.items() if name not in left_out}
        found = []
        for is_kept in (False, True):
            found.append(code(inputs[number % 2], parameters, keep=is_kept))
        equal(*found)
    assert steps[True] < 0.9 * steps[False]
    before = steps[True]
    equal(code(inputs[1], parameters, keep=True), found[1])
    assert steps[True] == before


def test_constants_that_are_exchanged_are_those_of_a_graph_made_anew() -> None:
    kept = images(4)
    quantizer = made(shifted(), kept)
    result, other = quantizer(Recipe()), quantizer(Recipe(correct_bias=False))
    graphs, inputs = (result.source, result.graph), {"x": kept[0].inputs["x"][None]}
    first = Rehearsal(*graphs, quantizer.options)
    nodes = [node.name for node in other.graph.nodes if node.operator.name == "Conv"]
    instead = {node.name: node for node in other.graph.nodes if node.name in nodes[:2]}
    for exchange in (Exchange(instead=instead), Exchange(exact=nodes[1:]), Exchange(nodes[:1], instead)):
        found = first.exchanged(*graphs, exchange)
        anew = Rehearsal(*graphs, quantizer.options, exchange=exchange)
        assert found is not None
        equal(found(inputs, parameters_of(result)), anew(inputs, parameters_of(result)))
        # Once more, on top of what is exchanged.
        again = found.exchanged(*graphs, Exchange(exact=nodes))
        assert again is not None
        exact = Rehearsal(*graphs, quantizer.options, exchange=Exchange(exact=nodes))
        equal(again(inputs, {}), exact(inputs, {}))


def siblings() -> Graph:
    """Two narrow convolutions of one value, which usual programs compute as one."""
    random = np.random.default_rng(21)
    b = GraphBuilder("siblings")
    x = b.input("x", float_type(1, 3, 6, 6))
    parts = []
    for name in ("first", "second"):
        w = b.constant(f"{name}.w", random.normal(size=(4, 3, 1, 1)).astype(np.float32))
        bias = b.constant(f"{name}.b", random.normal(size=4).astype(np.float32))
        parts.append(b.node(Conv(), x, w, bias, name=name))
    return b.finish(b.node(Mul(), *parts, name="y"))


def test_constants_of_products_that_would_be_merged_are_exchanged() -> None:
    """A rehearsal keeps them apart, so that trials of one product need no code of their own."""
    quantizer = made(siblings(), small_images(6))
    result = quantizer(Recipe())
    graphs = result.source, result.graph
    first = Rehearsal(*graphs, quantizer.options)
    exact = {node.name for node in result.graph.nodes if node.operator.accumulate is not None}
    assert len(exact) == 2 and {"first", "second"} <= first.rounded
    for name in exact:
        exchange = Exchange(exact={name})
        found = first.exchanged(*graphs, exchange)
        assert found is not None
        anew = Rehearsal(*graphs, quantizer.options, exchange=exchange)
        inputs = {"x": small_images(1)[0].inputs["x"][None]}
        equal(found(inputs, parameters_of(result)), anew(inputs, parameters_of(result)))


def test_a_float_node_may_read_weights_that_the_model_dequantizes(tmp_path: Path) -> None:
    """Its weights are int8 in both graphs, and a Dequantize between; that got the reals of its own result."""
    random = np.random.default_rng(6)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["real"]),
        helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["rounded"]),
        helper.make_node("Conv", ["rounded", "real"], ["c"]),
        helper.make_node("Conv", ["c", "w2"], ["y"]),
    ]
    constants = {
        "w": random.integers(-127, 128, size=(4, 3, 3, 3)).astype(np.int8),
        "s": np.float32(0.005),
        "step": np.float32(1e-4),
        "zero": np.uint16(30000),
        "w2": random.normal(size=(2, 4, 3, 3)).astype(np.float32),
    }
    path = save(tiny_model(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants, opset=21), tmp_path)
    model = qglow.load_model(path)
    profile = model.profile({"x": random.normal(size=(8, 3, 8, 8)).astype(np.float32)})
    parts = model.quantize(profile)._parts
    Rehearsal(parts.real, parts.int8)


SIGNALS = np.random.default_rng(12)


def signal_network(residual: bool) -> Graph:
    """Two convolutions over a signal, which becomes an image first; with a sum that reads the signal too."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["image"]),
        helper.make_node("Conv", ["image", "w"], ["h"], kernel_shape=[1, 3], pads=[0, 1, 0, 1]),
        helper.make_node("Conv", ["h", "v"], ["c"], kernel_shape=[1, 3], pads=[0, 1, 0, 1]),
        helper.make_node("Squeeze", ["c", "axis"], ["back" if residual else "y"]),
    ]
    if residual:
        nodes.append(helper.make_node("Add", ["back", "x"], ["y"]))
    constants = {
        "axis": np.array([2]),
        "w": SIGNALS.normal(size=(8, 1, 1, 3)).astype(np.float32),
        "v": SIGNALS.normal(size=(1, 8, 1, 3)).astype(np.float32),
    }
    return qglow.load_model(tiny_model(nodes, {"x": (1, 1, 64)}, ["y"], constants)).graph


@pytest.mark.parametrize("residual", [False, True])
def test_an_input_is_rounded_behind_a_reshape_in_float(residual: bool) -> None:
    """It was taken for exact there, since nothing writes what only shows an input in another shape."""
    graph = signal_network(residual)
    signals = [SIGNALS.normal(size=(1, 64)).astype(np.float32) for _ in range(8)]
    result = made(graph, [Sample(f"{i}", {"x": x}) for i, x in enumerate(signals)])(
        Recipe().with_overrides(keep_float=["op:Reshape", "op:Add"][: 1 + residual])
    )
    rehearsal = Rehearsal(result.source, result.graph)
    wanted = parameters_of(result)
    assert "image" in wanted
    assert rehearsal.rounded == wanted.keys()
    inputs = {"x": signals[0][None]}
    found = rehearsal(inputs, wanted)["y"]
    np.testing.assert_allclose(found, interpret(result.graph, inputs)["y"], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(inputs["x"], signals[0][None])
