"""Functions of models, and operators that ONNX defines by a function, become the nodes of their bodies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import FunctionProto, NodeProto, helper
from onnx.reference import ReferenceEvaluator

from qglow.core.errors import ModelError, UnsupportedError
from qglow.graph.interpreter import Interpreter
from qglow.importer import import_model
from tests.unit.importer.cases import ints
from tests.unit.importer.tiny import assert_as_onnxruntime, save, tiny_model

OPSET = 18


def call(name: str, *inputs: str, output: str = "y") -> NodeProto:
    return helper.make_node(name, list(inputs), [output], domain="own")


def function(name: str, *body: NodeProto, opset: int = OPSET) -> FunctionProto:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["x"], ["y"], list(body), opsets)


def model(nodes: list[NodeProto], functions: list[FunctionProto]) -> onnx.ModelProto:
    made = tiny_model(nodes, {"x": (2, 3)}, ["y"], opset=OPSET)
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.functions.extend(functions)
    return made


def test_functions_that_call_functions_are_their_nodes(tmp_path: Path) -> None:
    twice = function(
        "twice", helper.make_node("Add", ["x", "x"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])
    )
    outer = function("outer", call("twice", "x", output="t"), call("twice", "t"))
    path = save(model([call("outer", "x", output="z"), call("outer", "z")], [twice, outer]), tmp_path)
    graph = import_model(path).graph
    assert [node.operator.name for node in graph.nodes] == ["Add", "Tanh"] * 4
    assert_as_onnxruntime(graph, path)


def test_operators_defined_by_a_function_need_no_import_function(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("CenterCropPad", ["x", "shape"], ["c"], axes=[2, 3]),
        helper.make_node("Softsign", ["c"], ["y"]),
    ]
    constants = {"shape": ints(4, 7)}
    path = save(tiny_model(nodes[::-1], {"x": (1, 2, 6, 5)}, ["y"], constants, opset=OPSET), tmp_path)
    graph = import_model(path).graph
    assert graph.outputs[0].type.shape == (1, 2, 4, 7)
    x = np.random.default_rng(1).normal(size=(1, 2, 6, 5)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), (0, 0), (1, 1)))[:, :, 1:5]
    assert np.allclose(Interpreter(graph).run({"x": x})["y"], padded / (1 + np.abs(padded)))


def test_a_function_that_calls_itself_is_refused(tmp_path: Path) -> None:
    path = save(model([call("f", "x")], [function("f", call("f", "x"))]), tmp_path)
    with pytest.raises(ModelError, match="'f' of the model calls itself"):
        import_model(path)


def test_functions_that_multiply_are_refused(tmp_path: Path) -> None:
    levels = [
        function(f"f{i}", call(f"f{i + 1}", "x", output="t"), call(f"f{i + 1}", "t")) for i in range(40)
    ]
    last = function("f40", helper.make_node("Tanh", ["x"], ["y"]))
    path = save(model([call("f0", "x")], [*levels, last]), tmp_path)
    with pytest.raises(ModelError, match="more than 1000000 nodes"):
        import_model(path)


def test_a_function_of_an_older_opset_is_converted(tmp_path: Path) -> None:
    old = function("old", helper.make_node("Unsqueeze", ["x"], ["y"], axes=[1]), opset=11)
    path = save(model([call("old", "x")], [old]), tmp_path)
    assert import_model(path).graph.outputs[0].type.shape == (2, 1, 3)


def test_a_function_that_cannot_be_inlined_is_refused_by_name(tmp_path: Path) -> None:
    old = function("old", helper.make_node("NoSuchOperator", ["x"], ["y"]), opset=11)
    path = save(model([call("old", "x")], [old]), tmp_path)
    with pytest.raises(UnsupportedError, match="own.old|NoSuchOperator"):
        import_model(path)


def test_function_of_an_operator_without_an_optional_input(tmp_path: Path) -> None:
    names = {"q": (1, 3, 8), "k": (1, 3, 8), "v": (1, 3, 8), "d": (1, 3, 8)}
    node = helper.make_node(
        "LinearAttention",
        ["q", "k", "v", "", "d"],
        ["y", "state"],
        q_num_heads=2,
        kv_num_heads=2,
        update_rule="gated",
    )
    model = tiny_model([node], names, ["y"], opset=27)
    rng = np.random.default_rng(4)
    feeds = {name: rng.uniform(-1, 0, shape).astype(np.float32) for name, shape in names.items()}
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    found = Interpreter(import_model(save(model, tmp_path), native=True).graph).run(feeds)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
