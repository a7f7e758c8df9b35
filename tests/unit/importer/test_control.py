"""If and Loop whose conditions and counts are constants, in place of the nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from qglow.core.errors import UnsupportedError
from qglow.importer import import_model
from tests.unit.importer.test_opaque import assert_same, loop
from tests.unit.importer.tiny import save, tiny_model

X = np.random.default_rng(3).standard_normal((1, 6)).astype(np.float32)


def branch(name: str, op_type: str) -> GraphProto:
    """A branch with a constant of its own, and a value that the other branch names alike."""
    nodes = [helper.make_node(op_type, ["k", "c"], ["inner"]), helper.make_node("Neg", ["inner"], ["out"])]
    result = helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 6])
    return helper.make_graph(nodes, name, [], [result], [numpy_helper.from_array(np.float32(3), "c")])


def chosen(condition: bool) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    body = {"then_branch": branch("t", "Mul"), "else_branch": branch("e", "Add")}
    node = helper.make_node("If", ["which"], ["f"], **body)
    nodes = [helper.make_node("Relu", ["x"], ["k"]), node, helper.make_node("Add", ["f", "x"], ["y"])]
    return nodes, {"which": np.array(condition)}


def counting(limit: int) -> NodeProto:
    """A loop that ends when its counter reaches `limit`, and gives each round's sum besides."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["n", "one"], ["n_next"]),
            helper.make_node("Less", ["n_next", "limit"], ["on"]),
            helper.make_node("Add", ["s", "k"], ["s_next"]),
            helper.make_node("Mul", ["s_next", "s_next"], ["square"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [1, 6]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("n_next", TensorProto.INT64, []),
            helper.make_tensor_value_info("s_next", TensorProto.FLOAT, [1, 6]),
            helper.make_tensor_value_info("square", TensorProto.FLOAT, [1, 6]),
        ],
        [numpy_helper.from_array(np.int64(limit), "limit"), numpy_helper.from_array(np.int64(1), "one")],
    )
    return helper.make_node("Loop", ["", "", "zero", "x"], ["rounds", "last", "y"], body=body)


@pytest.mark.parametrize("condition", [False, True])
def test_the_branch_that_a_constant_chooses(tmp_path: Path, condition: bool) -> None:
    nodes, constants = chosen(condition)
    graph = assert_same(save(tiny_model(nodes, {"x": (1, 6)}, ["y"], constants, opset=16), tmp_path), [])
    kinds = [node.operator.name for node in graph.nodes]
    assert ("Mul" in kinds) is condition


def test_a_loop_of_a_constant_count(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["k"]), loop(), helper.make_node("Neg", ["looped"], ["y"])]
    model = tiny_model(nodes, {"x": (1, 6)}, ["y"], {"count": np.array(3)}, opset=16)
    graph = assert_same(save(model, tmp_path), [])
    assert sum(node.operator.name == "Add" for node in graph.nodes) == 6


def test_a_loop_that_a_counter_ends_with_a_row_a_round(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["k"]), counting(4)]
    model = tiny_model(nodes, {"x": (1, 6)}, ["last", "y"], {"zero": np.array(0)}, opset=16)
    graph = assert_same(save(model, tmp_path), [])
    assert [value.type.shape for value in graph.outputs] == [(1, 6), (4, 1, 6)]


def test_a_loop_of_too_many_rounds_stays_a_loop(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["k"]), loop(), helper.make_node("Neg", ["looped"], ["y"])]
    model = tiny_model(nodes, {"x": (1, 6)}, ["y"], {"count": np.array(5000)}, opset=16)
    graph = import_model(save(model, tmp_path), native=True).graph
    assert [node.operator.name for node in graph.nodes] == ["Relu", "Loop", "Neg"]


def test_a_body_that_is_not_supported_leaves_nothing_behind(tmp_path: Path) -> None:
    nodes, constants = chosen(True)
    inner = next(a.g for a in nodes[1].attribute if a.name == "then_branch")
    inner.node[0].CopyFrom(helper.make_node("Unique", ["k"], ["inner"]))
    path = save(tiny_model(nodes, {"x": (1, 6)}, ["y"], constants, opset=16), tmp_path)
    with pytest.raises(UnsupportedError, match=r"one thing that qglow .*\n.*\(If, opset 16\)"):
        import_model(path, native=True)


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan_over_the_slices_of_an_input(axis: int, back: int, tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Mul", ["t", "k"], ["row"])],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("s", "e")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("t", "row")],
    )
    scan = helper.make_node(
        "Scan",
        ["start", "tall"],
        ["last", "y"],
        body=body,
        num_scan_inputs=1,
        scan_input_directions=[back],
        scan_output_axes=[axis],
        scan_output_directions=[1 - back],
    )
    nodes = [
        helper.make_node("Transpose", ["x"], ["tall"], perm=[1, 0]),
        helper.make_node("Relu", ["two"], ["k"]),
        scan,
    ]
    constants = {"start": np.ones(1, np.float32), "two": np.full(1, 2, np.float32)}
    model = tiny_model(nodes, {"x": (1, 6)}, ["last", "y"], constants, opset=16)
    graph = assert_same(save(model, tmp_path), [])
    assert [value.type.shape for value in graph.outputs] == [(1,), (6, 1) if axis == 0 else (1, 6)]


def recurrent_branch() -> tuple[NodeProto, dict[str, np.ndarray]]:
    """An If that a constant chooses, of whose branch a later If reads the last state of an LSTM."""
    random = np.random.default_rng(5)
    weights = {"w": (1, 16, 6), "r": (1, 16, 4), "b": (1, 32)}
    constants = {name: random.standard_normal(shape).astype(np.float32) for name, shape in weights.items()}

    def one(kind: str) -> GraphProto:
        result = helper.make_tensor_value_info(kind, TensorProto.FLOAT, None)
        inputs = ["last", "first_axis"] if kind == "Squeeze" else ["last"]
        return helper.make_graph([helper.make_node(kind, inputs, [kind])], kind, [], [result])

    nodes = [
        helper.make_node("Unsqueeze", ["k", "first_axis"], ["steps"]),
        helper.make_node("LSTM", ["steps", "w", "r", "b"], ["", "last"], hidden_size=4),
        helper.make_node("Shape", ["last"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["thin"]),
        helper.make_node("If", ["thin"], ["out"], then_branch=one("Squeeze"), else_branch=one("Identity")),
    ]
    outer = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    then = helper.make_graph(nodes, "then", [], [outer])
    other = helper.make_graph([helper.make_node("Neg", ["k"], ["out"])], "else", [], [outer])
    node = helper.make_node("If", ["which"], ["f"], then_branch=then, else_branch=other)
    constants |= {"which": np.array(True), "first_axis": np.array([0])}
    return node, constants | {"zero": np.array(0), "one": np.array(1)}


def test_what_only_a_later_node_of_a_branch_reads_is_computed(tmp_path: Path) -> None:
    node, constants = recurrent_branch()
    nodes = [helper.make_node("Relu", ["x"], ["k"]), node, helper.make_node("Neg", ["f"], ["y"])]
    graph = assert_same(save(tiny_model(nodes, {"x": (1, 6)}, ["y"], constants, opset=16), tmp_path), [])
    assert any(found.operator.name == "Recurrence" for found in graph.nodes)
