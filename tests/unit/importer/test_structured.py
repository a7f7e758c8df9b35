"""If, Loop and Scan that data decides: nodes with regions, held to onnxruntime, or left to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

import qglow
from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter, interpret
from qglow.graph.ops.control import Loop
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.graph.verifier import verify_graph
from qglow.importer import import_model
from qglow.importer.counting import MOST_ROUNDS
from qglow.passes.pipeline import canonicalize
from tests.unit.importer.test_control import branch
from tests.unit.importer.test_opaque import opaque_kinds
from tests.unit.importer.tiny import save, session, tiny_model

X = np.random.default_rng(3).standard_normal((1, 6)).astype(np.float32)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def held(
    nodes: Sequence[NodeProto],
    outputs: Sequence[str],
    folder: Path,
    feeds: Sequence[Array] = (X, -X, 4 * X),
    constants: Mapping[str, Array] | None = None,
    native: bool = True,
) -> Graph:
    """Import a model, canonical too, and hold it and its text to onnxruntime on several inputs."""
    path = save(tiny_model(nodes, {"x": feeds[0].shape}, outputs, constants, opset=16), folder)
    graph = import_model(path, native=native).graph
    verify_graph(graph, "as imported")
    runtime = session(path)
    for form in (graph, canonicalize(graph)):
        again = parse_graph(print_graph(form), constant_data(form))
        for x in feeds:
            wanted = runtime.run(None, {"x": x})
            found = Interpreter(again).run({"x": x})
            for value, expected in zip(form.outputs, wanted, strict=True):
                np.testing.assert_allclose(found[value.name], expected, rtol=1e-5, atol=2e-5)
    return graph


def kinds(graph: Graph) -> list[str]:
    """Operators with regions, those inside of regions too."""
    own = [n.operator.name for n in graph.nodes if n.operator.region_names]
    return own + [name for region in graph.regions() for name in kinds(region)]


def body(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int]]],
    outputs: Mapping[str, tuple[int, Sequence[int]]],
    constants: Mapping[str, Array] | None = None,
) -> GraphProto:
    taken, given = (
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in side.items()]
        for side in (inputs, outputs)
    )
    data = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    return helper.make_graph(list(nodes), "body", taken, given, data)


ROW = (FLOAT, [1, 6])
START: dict[str, tuple[int, Sequence[int]]] = {"i": (INT64, []), "go": (BOOL, [])}
POSITIVE = [
    node("Relu", ["x"], ["k"]),
    node("ReduceSum", ["x"], ["sum"], keepdims=0),
    node("Greater", ["sum", "nought"], ["which"]),
]
NOUGHT = {"nought": np.float32(0)}


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_branch_that_data_chooses(shape: tuple[int, ...], tmp_path: Path) -> None:
    bodies = {"then_branch": branch("t", "Mul"), "else_branch": branch("e", "Add")}
    nodes = [*POSITIVE, node("Reshape", ["which", "to"], ["flag"]), node("If", ["flag"], ["f"], **bodies)]
    nodes.append(node("Add", ["f", "x"], ["y"]))
    graph = held(nodes, ["y"], tmp_path, constants={**NOUGHT, "to": np.array(shape, np.int64)})
    assert kinds(graph) == ["If"]


def test_branches_that_read_different_values_and_none(tmp_path: Path) -> None:
    first = body([node("Mul", ["k", "x"], ["out"])], {}, {"out": ROW})
    second = body([], {}, {"c": ROW}, {"c": np.arange(6, dtype=np.float32).reshape(1, 6)})
    nodes = [*POSITIVE, node("If", ["which"], ["y"], then_branch=first, else_branch=second)]
    assert kinds(held(nodes, ["y"], tmp_path, constants=NOUGHT)) == ["If"]


def test_branches_of_different_shapes_are_left_to_onnxruntime(tmp_path: Path) -> None:
    first = body([node("Neg", ["k"], ["out"])], {}, {"out": (FLOAT, [1, 6])})
    second = body([node("ReduceMax", ["x"], ["out"], axes=[1])], {}, {"out": (FLOAT, [1, 1])})
    bodies = {"then_branch": first, "else_branch": second}
    nodes = [*POSITIVE, node("If", ["which"], ["f"], **bodies), node("ReduceSum", ["f"], ["y"], keepdims=0)]
    graph = held(nodes, ["y"], tmp_path, constants=NOUGHT, native=False)
    assert kinds(graph) == [] and len(opaque_kinds(graph)) == 1


def doubling(extra: Sequence[NodeProto] = (), goes_on: str = "go") -> GraphProto:
    """s becomes 2 s + k, where k is a value around the loop."""
    nodes = [
        *extra,
        node("Identity", [goes_on], ["on"]),
        node("Add", ["s", "s"], ["twice"]),
        node("Add", ["twice", "k"], ["next"]),
    ]
    return body(nodes, {**START, "s": ROW}, {"on": (BOOL, []), "next": ROW}, {"most": np.float32(50)})


COUNT = [
    node("Relu", ["x"], ["k"]),
    node("ReduceMax", ["k"], ["largest"], keepdims=0),
    node("Cast", ["largest"], ["count"], to=INT64),
]


def test_a_loop_as_often_as_data_says(tmp_path: Path) -> None:
    graph = held([*COUNT, node("Loop", ["count", "", "x"], ["y"], body=doubling())], ["y"], tmp_path)
    assert kinds(graph) == ["Loop"]


@pytest.mark.parametrize("limit", ["", "count"])
def test_a_loop_until_a_condition_on_what_it_carries(limit: str, tmp_path: Path) -> None:
    extra = [node("ReduceMax", ["s"], ["top"], keepdims=0), node("Less", ["top", "most"], ["small"])]
    loop = node("Loop", [limit, "", "x"], ["y"], body=doubling(extra, "small"))
    feeds = (np.abs(X), np.abs(X) + 3)  # others never end
    graph = held([*COUNT, loop], ["y"], tmp_path, feeds=feeds)
    (found,) = (n.operator for n in graph.nodes if isinstance(n.operator, Loop))
    assert found.conditional and found.rounds is None


def test_a_condition_before_the_first_round(tmp_path: Path) -> None:
    nodes = [*POSITIVE, node("Loop", ["three", "which", "x"], ["y"], body=doubling())]
    graph = held(nodes, ["y"], tmp_path, constants={**NOUGHT, "three": np.array(3)})
    assert kinds(graph) == ["Loop"]


def test_a_loop_of_many_rounds_with_a_row_each(tmp_path: Path) -> None:
    inner = body(
        [
            node("Mul", ["s", "half"], ["small"]),
            node("Add", ["small", "k"], ["next"]),
            node("Cast", ["i"], ["number"], to=FLOAT),
            node("Add", ["next", "number"], ["row"]),
        ],
        {**START, "s": ROW},
        {"go": (BOOL, []), "next": ROW, "row": ROW},
        {"half": np.float32(0.5)},
    )
    nodes = [node("Relu", ["x"], ["k"]), node("Loop", ["many", "", "x"], ["y", "rows"], body=inner)]
    graph = held(nodes, ["y", "rows"], tmp_path, constants={"many": np.array(700)})
    assert kinds(graph) == ["Loop"] and graph.outputs[1].type.shape == (700, 1, 6)


def counted(limit: int, data: bool = False) -> tuple[list[NodeProto], dict[str, Array]]:
    """A loop over the rows of w as TensorFlow has it: counters end it, and w passes through unchanged."""
    inner = body(
        [
            node("Gather", ["w", "n"], ["row"]),
            node("Tanh", ["s"], ["small"]),
            node("Mul", ["small", "scale"], ["scaled"]),
            node("Add", ["scaled", "row"], ["next"]),
            node("Add", ["n", "one"], ["n_next"]),
            node("Less", ["n_next", "end"], ["on"]),
            node("Identity", ["scale"], ["scale_next"]),
        ],
        {**START, "n": (INT64, []), "s": ROW, "scale": ROW},
        {"on": (BOOL, []), "n_next": (INT64, []), "next": ROW, "scale_next": ROW, "row": ROW},
        {"one": np.array(1)},
    )
    loop = node("Loop", ["", "", "zero", "x", "k"], ["n_end", "y", "same", "rows"], body=inner)
    constants = {
        "zero": np.array(0),
        "w": np.random.default_rng(1).standard_normal((limit, 1, 6)).astype(np.float32),
        "ends": np.array(limit),
        "none": np.float32(0),
    }
    end = [node("Cast", ["sum"], ["few"], to=INT64), node("Min", ["few", "ends"], ["end"])]
    known = [node("Identity", ["ends"], ["end"])]
    first = [node("Relu", ["x"], ["k"]), node("ReduceSum", ["k"], ["sum"], keepdims=0)]
    return [*first, *(end if data else known), loop], constants


def test_counters_prove_the_rounds_and_what_passes_through_is_not_carried(tmp_path: Path) -> None:
    nodes, constants = counted(450)
    graph = held(nodes, ["y", "same", "rows"], tmp_path, constants=constants)
    (loop,) = (n.operator for n in graph.nodes if isinstance(n.operator, Loop))
    assert (loop.rounds, loop.carried, loop.conditional) == (450, 2, False)


def test_rows_of_a_number_that_data_decides_are_left_to_onnxruntime(tmp_path: Path) -> None:
    nodes, constants = counted(450, data=True)
    graph = held(nodes, ["y", "same"], tmp_path, constants=constants, native=False, feeds=(4 * X,))
    assert opaque_kinds(graph) == ["Loop"]


def test_more_rounds_than_are_counted_keep_their_condition(tmp_path: Path) -> None:
    inner = body(
        [node("Less", ["i", "end"], ["on"]), node("Mul", ["s", "nearly"], ["next"])],
        {**START, "s": ROW},
        {"on": (BOOL, []), "next": ROW},
        {"end": np.array(MOST_ROUNDS + 5), "nearly": np.float32(0.999)},
    )
    nodes = [node("Loop", ["", "", "x"], ["y"], body=inner)]
    path = save(tiny_model(nodes, {"x": (1, 6)}, ["y"], opset=16), tmp_path)
    (loop,) = (n.operator for n in import_model(path, native=True).graph.nodes)
    assert isinstance(loop, Loop) and loop.conditional


def test_a_scan_of_many_slices_along_other_axes(tmp_path: Path) -> None:
    inner = body(
        [node("Mul", ["s", "k"], ["p"]), node("Add", ["p", "e"], ["t"]), node("Tanh", ["t"], ["row"])],
        {"s": (FLOAT, [3]), "e": (FLOAT, [3])},
        {"t": (FLOAT, [3]), "row": (FLOAT, [3])},
    )
    settings = {"scan_input_axes": [1], "scan_input_directions": [1], "scan_output_axes": [1]}
    scan = node("Scan", ["start", "x"], ["last", "y"], body=inner, num_scan_inputs=1, **settings)
    nodes = [node("ReduceMax", ["x"], ["top"], axes=[1], keepdims=0), node("Sigmoid", ["top"], ["k"]), scan]
    x = np.random.default_rng(2).standard_normal((3, 900)).astype(np.float32)
    graph = held(nodes, ["last", "y"], tmp_path, (x,), {"start": np.ones(3, np.float32)})
    assert kinds(graph) == ["Loop"] and graph.outputs[1].type.shape == (3, 900)


def test_a_branch_inside_of_a_loop(tmp_path: Path) -> None:
    up, down = (body([node(op, ["s", "k"], ["r"])], {}, {"r": ROW}) for op in ("Add", "Sub"))
    inner = body(
        [
            node("ReduceMax", ["s"], ["top"], keepdims=0),
            node("Less", ["top", "two"], ["low"]),
            node("If", ["low"], ["next"], then_branch=up, else_branch=down),
        ],
        {**START, "s": ROW},
        {"go": (BOOL, []), "next": ROW},
        {"two": np.float32(2)},
    )
    graph = held([*COUNT, node("Loop", ["count", "", "x"], ["y"], body=inner)], ["y"], tmp_path, (X, 9 * X))
    assert kinds(graph) == ["Loop", "If"]


def test_a_carried_value_that_grows_is_left_to_onnxruntime(tmp_path: Path) -> None:
    inner = body(
        [node("Concat", ["s", "k"], ["next"], axis=0)],
        {**START, "s": (FLOAT, [None, 6])},
        {"go": (BOOL, []), "next": (FLOAT, [None, 6])},
    )
    nodes = [*COUNT, node("Loop", ["count", "", "x"], ["grown"], body=inner)]
    nodes.append(node("ReduceSum", ["grown"], ["y"], keepdims=0))
    path = save(tiny_model(nodes, {"x": (1, 6)}, ["y"], opset=16), tmp_path)
    graph = import_model(path).graph
    (expected,) = session(path).run(None, {"x": X})
    np.testing.assert_allclose(interpret(graph, {"x": X})["y"], expected, rtol=1e-6)
    assert graph.tail is not None and graph.tail.kinds == "Loop, ReduceSum" and kinds(graph) == []


def test_an_unknown_operator_of_a_body_runs_in_onnxruntime_alone(tmp_path: Path) -> None:
    inner = doubling([node("Unique", ["k"], ["u"]), node("ReduceSum", ["u"], ["v"], keepdims=0)])
    inner.node[-1].input[1] = "v"
    nodes = [*COUNT, node("Loop", ["count", "", "x"], ["y"], body=inner)]
    graph = held(nodes, ["y"], tmp_path, native=False)
    assert (kinds(graph), opaque_kinds(graph)) == (["Loop"], [])
    assert opaque_kinds(graph.regions()[0]) == ["Unique, ReduceSum"]


def test_a_constant_that_both_sides_of_a_region_read(tmp_path: Path) -> None:
    inner = body(
        [node("Mul", ["s", "c"], ["p"]), node("Add", ["p", "k"], ["next"])],
        {**START, "s": ROW},
        {"go": (BOOL, []), "next": ROW},
    )
    nodes = [*COUNT, node("Mul", ["x", "c"], ["z"]), node("Loop", ["count", "", "z"], ["w"], body=inner)]
    nodes.append(node("Add", ["w", "c"], ["y"]))
    constants = {"c": np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(1, 6)}
    graph = held(nodes, ["y"], tmp_path, constants=constants)
    inside = {value for region in graph.regions() for value in region.values()}
    assert not inside & set(graph.values())


def test_shapes_that_a_body_states_may_be_wrong(tmp_path: Path) -> None:
    """Exporters call one element a scalar: onnx's inference refuses that, onnxruntime runs it."""
    raised = body([node("Cast", ["flag"], ["a"], to=FLOAT)], {}, {"a": (FLOAT, [])})
    kept = body([node("Constant", [], ["b"], value_floats=[2.0])], {}, {"b": (FLOAT, [])})
    cell = body(
        [
            node("If", ["go"], ["more"], then_branch=raised, else_branch=kept),
            node("FusedGemm", ["s", "w"], ["p"], domain="com.microsoft", activation="Softsign"),
            node("Add", ["p", "more"], ["next"]),
            node("Not", ["flag"], ["turned"]),
            node("Concat", ["grown", "s"], ["more_grown"], axis=0),
        ],
        {**START, "flag": (BOOL, []), "s": ROW, "grown": (FLOAT, ["n", 6])},
        {"go": (BOOL, []), "turned": (BOOL, []), "next": ROW, "more_grown": (FLOAT, ["m", 6])},
    )
    nodes = [
        node("Greater", ["x", "x"], ["none"]),
        node("Slice", ["none", "from", "to", "last"], ["row"]),
        node("Squeeze", ["row", "from"], ["first"]),
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Cast", ["most"], ["count"], to=INT64),
        node("Loop", ["count", "", "first", "x", "x"], ["flag_after", "y", "rows"], body=cell),
    ]
    constants = {
        "w": np.eye(6, dtype=np.float32)[::-1].copy(),
        "from": np.array([0], np.int64),
        "to": np.array([1], np.int64),
        "last": np.array([1], np.int64),
    }
    model = tiny_model(nodes, {"x": (1, 6)}, ["y"], constants, opset=16)
    model.opset_import.add(domain="com.microsoft", version=1)
    x = np.array([[0.5, -2, 3.2, 1, 0, 2]], np.float32)
    path = save(model, tmp_path)
    (expected,) = session(path).run(None, {"x": x})
    np.testing.assert_allclose(qglow.load_model(path).compile()({"x": x})["y"], expected, rtol=1e-6)
