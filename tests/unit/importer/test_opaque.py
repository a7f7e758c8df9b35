"""Nodes without an import function: what of them becomes opaque, with which types, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from qglow.core.errors import UnsupportedError, VerificationError
from qglow.core.types import Array, ElementType
from qglow.graph.fingerprint import fingerprint
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter, interpret
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.graph.verifier import verify_graph
from qglow.host.session import result_types
from qglow.importer import import_model
from tests.unit.importer.tiny import random_feeds, save, session, tiny_model

X = np.random.default_rng(3).standard_normal((1, 6)).astype(np.float32)


def opaque_kinds(graph: Graph) -> list[str]:
    return [node.operator.hosted.kinds for node in graph.nodes if node.operator.hosted is not None]


def assert_same(path: Path, kinds: list[str], x: Array = X) -> Graph:
    """Import a model, hold it to onnxruntime, and its text to itself; the opaque nodes are of these kinds."""
    graph = import_model(path).graph
    verify_graph(graph, "as imported")
    assert opaque_kinds(graph) == kinds
    wanted = session(path).run(None, {"x": x})
    found = Interpreter(parse_graph(print_graph(graph), constant_data(graph))).run({"x": x})
    for value, expected in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-8)
    return graph


def loop() -> NodeProto:
    """A loop that doubles s and adds k, which is a value outside of its body, to it."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Add", ["s", "s"], ["twice"]),
            helper.make_node("Add", ["twice", "k"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [1, 6]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [1, 6]),
        ],
    )
    return helper.make_node("Loop", ["count", "", "x"], ["looped"], body=body)


def nonzero_path(tmp_path: Path, tail: list[NodeProto]) -> Path:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("NonZero", ["r"], ["places"]), *tail]
    return save(tiny_model(nodes, {"x": (1, 6)}, ["y"], {"axes": np.array([0, 1])}), tmp_path)


def test_an_unknown_operator_runs_in_onnxruntime(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Trilu", ["r"], ["g"], domain="com.microsoft"),
        helper.make_node("Add", ["g", "x"], ["y"]),
    ]
    model = tiny_model(nodes, {"x": (1, 6)}, ["y"])
    model.opset_import.add(domain="com.microsoft", version=1)
    path = save(model, tmp_path)
    assert_same(path, ["com.microsoft.Trilu"])
    notes = import_model(path).bound_dimensions
    assert notes == ("one node runs in onnxruntime, in float: 'Trilu_1' (com.microsoft.Trilu)",)


def test_an_opaque_node_is_an_error_if_all_is_to_be_native(tmp_path: Path) -> None:
    path = nonzero_path(tmp_path, [helper.make_node("Size", ["places"], ["y"])])
    with pytest.raises(UnsupportedError, match="NonZero"):
        import_model(path, native=True)


def test_nodes_run_together_until_a_type_is_static(tmp_path: Path) -> None:
    tail = [
        helper.make_node("Cast", ["places"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["f", "axes"], ["sum"], keepdims=1),
        helper.make_node("Add", ["sum", "x"], ["y"]),
    ]
    assert_same(nonzero_path(tmp_path, tail), ["NonZero, Cast, ReduceSum"])


def test_nodes_behind_a_shape_that_data_decides_are_the_tail_of_the_graph(tmp_path: Path) -> None:
    path = nonzero_path(tmp_path, [helper.make_node("Cast", ["places"], ["y"], to=TensorProto.FLOAT)])
    graph = import_model(path).graph
    assert graph.tail is not None and graph.tail.kinds == "NonZero, Cast"
    assert graph.tail.operands == ("r",) and [value.name for value in graph.outputs] == ["r"]
    feeds = random_feeds(graph)
    np.testing.assert_array_equal(interpret(graph, feeds)["y"], session(path).run(None, feeds)[0])


def test_a_tail_is_part_of_a_graph_s_text_identity_and_rules(tmp_path: Path) -> None:
    path = nonzero_path(tmp_path, [helper.make_node("Cast", ["places"], ["y"], to=TensorProto.FLOAT)])
    graph = import_model(path).graph
    again = parse_graph(print_graph(graph), constant_data(graph))
    assert again.tail == graph.tail and fingerprint(again) == fingerprint(graph.copy())
    verify_graph(again, "as parsed")
    without = graph.copy()
    without.tail = None
    assert fingerprint(without) != fingerprint(graph)
    graph.outputs = []
    with pytest.raises(VerificationError, match="tail: operand 'r' is neither an input nor an output"):
        verify_graph(graph, "here")


def test_an_output_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["places"], ["y"]),
    ]
    with pytest.raises(UnsupportedError, match="output 'y' .*'y' is no tensor"):
        import_model(nonzero_path(tmp_path, nodes))


def test_a_body_reads_values_around_its_node(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["k"]),
        helper.make_node("ReduceMax", ["k"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["count"], to=TensorProto.INT64),
        loop(),
        helper.make_node("Neg", ["looped"], ["y"]),
    ]
    x = np.array([[0.5, -2, 3.2, 1, 0, 2]], np.float32)
    assert_same(save(tiny_model(nodes, {"x": (1, 6)}, ["y"], opset=16), tmp_path), [], x)


def test_names_do_not_matter_to_a_fingerprint(tmp_path: Path) -> None:
    def made(prefix: str) -> str:
        nodes = [
            helper.make_node("NonZero", ["x"], [f"{prefix}a"]),
            helper.make_node("Size", [f"{prefix}a"], ["y"], name=prefix),
        ]
        model = tiny_model(nodes, {"x": (1, 6)}, ["y"], output_type=TensorProto.INT64)
        return fingerprint(import_model(save(model, tmp_path)).graph)

    assert made("one") == made("other")


@pytest.mark.parametrize("size", [6, 2000])
def test_inputs_and_constants_of_16_bits_go_to_such_nodes(size: int, tmp_path: Path) -> None:
    """A large constant is an operand of its own, a small one a part of the node."""
    node = helper.make_node("ScatterElements", ["table", "places", "x"], ["y"], axis=1)
    table = np.linspace(-1, 1, size).astype(np.float16).reshape(2, -1)
    model = tiny_model([node], {"x": (1, 3)}, ["y"], {"table": table}, output_type=TensorProto.FLOAT16)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    model.graph.input.append(helper.make_tensor_value_info("places", TensorProto.INT64, [1, 3]))
    path = save(model, tmp_path)
    graph = import_model(path).graph
    verify_graph(graph, "as imported")
    assert opaque_kinds(graph) == ["ScatterElements"]
    feeds = {"x": np.array([[0.1, -2.5, 7]], np.float16), "places": np.array([[1, 0, 2]])}
    found = Interpreter(graph).run(feeds)["y"]
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, session(path).run(None, feeds)[0])


def test_reals_of_16_bits_are_read_and_given_as_float32(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Inverse", ["h"], ["g"], domain="com.microsoft"),
        helper.make_node("Cast", ["g"], ["y"], to=TensorProto.FLOAT),
    ]
    model = tiny_model(nodes, {"x": (1, 2, 2)}, ["y"])
    model.opset_import.add(domain="com.microsoft", version=1)
    graph = import_model(save(model, tmp_path)).graph
    assert "com.microsoft.Inverse" in opaque_kinds(graph)
    x = np.array([[[1.5, 0.25], [-0.5, 2.0]]], np.float32)
    (found,) = Interpreter(graph).run({"x": x}).values()
    np.testing.assert_allclose(found, np.linalg.inv(x), atol=5e-3)


def test_nodes_of_constants_are_computed_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Inverse", ["c"], ["g"], domain="com.microsoft"),
        helper.make_node("Add", ["x", "g"], ["y"]),
    ]
    model = tiny_model(nodes, {"x": (1, 6)}, ["y"], {"c": 2 * np.eye(6, dtype=np.float32)})
    model.opset_import.add(domain="com.microsoft", version=1)
    assert_same(save(model, tmp_path), [])


def test_random_numbers_are_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["y"])]
    path = save(tiny_model(nodes, {"x": (1, 6)}, ["y"]), tmp_path)
    with pytest.raises(UnsupportedError, match="random numbers are not supported"):
        import_model(path)


def test_dropout_of_training_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Dropout", ["x", "ratio", "training"], ["y"])]
    constants = {"ratio": np.array(0.5, np.float32), "training": np.array(True)}
    path = save(tiny_model(nodes, {"x": (1, 6)}, ["y"], constants), tmp_path)
    with pytest.raises(UnsupportedError, match="training mode draws random numbers"):
        import_model(path)


def test_an_operator_that_onnxruntime_lacks_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Special", ["x"], ["y"], domain="my.company")]
    model = tiny_model(nodes, {"x": (1, 6)}, ["y"])
    model.opset_import.add(domain="my.company", version=1)
    with pytest.raises(UnsupportedError, match=r"onnxruntime has no my.company.Special; name the library"):
        import_model(save(model, tmp_path))


def test_bodies_that_do_not_take_their_inputs_never_reach_onnxruntime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may crash on an LSTM of another rank in a branch of a branch."""

    def asked(model: bytes) -> list[tuple[ElementType | None, tuple[int | None, ...]]]:
        assert b"then_branch" not in model
        return result_types(model)

    monkeypatch.setattr("qglow.importer.opaque.result_types", asked)
    result = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    lstm = helper.make_node("LSTM", ["k", "w", "r"], ["", "out"], hidden_size=4)
    plain = helper.make_graph([helper.make_node("Neg", ["k"], ["out"])], "else", [], [result])
    inner = helper.make_graph([lstm], "inner", [], [result])
    nested = helper.make_node("If", ["which"], ["out"], then_branch=inner, else_branch=plain)
    outer = helper.make_graph([nested], "then", [], [result])
    nodes = [
        helper.make_node("Relu", ["x"], ["k"]),
        helper.make_node("ReduceMax", ["k"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["which"], to=TensorProto.BOOL),
        helper.make_node("If", ["which"], ["y"], then_branch=outer, else_branch=plain),
    ]
    weights = {"w": np.ones((1, 16, 6), np.float32), "r": np.ones((1, 16, 4), np.float32)}
    path = save(tiny_model(nodes, {"x": (1, 6)}, ["y"], weights, opset=16), tmp_path)
    with pytest.raises(UnsupportedError, match="its operators do not fit its inputs"):
        import_model(path)
