"""Parts of models: what belongs to them, and which cuts are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.core.errors import UsageError
from tests.unit.importer.tiny import save, session, tiny_model

X = np.random.default_rng(3).standard_normal((1, 6)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Add", ["b", "v"], ["c"]),
        helper.make_node("Add", ["c", "x"], ["d"]),
        helper.make_node("NonZero", ["d"], ["places"]),
        helper.make_node("Cast", ["places"], ["y"], to=TensorProto.FLOAT),
    ]
    constants = {"w": np.arange(6, dtype=np.float32), "v": np.ones(6, np.float32)}
    return save(tiny_model(nodes, {"x": (1, 6)}, ["y"], constants), tmp_path)


def test_a_part_gives_what_the_whole_model_has_there(path: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.onnx"
    qglow.cut_model(path, part, outputs=["b"])
    model = onnx.load(part)
    assert [node.op_type for node in model.graph.node] == ["Mul", "Relu"]
    assert [tensor.name for tensor in model.graph.initializer] == ["w"]
    (found,) = session(part).run(None, {"x": X})
    np.testing.assert_array_equal(found, np.maximum(X * np.arange(6), 0))
    np.testing.assert_array_equal(qglow.load_model(part).interpret({"x": X})["b"], found)


def test_a_part_begins_at_tensors_and_keeps_inputs_that_it_needs(path: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.onnx"
    qglow.cut_model(path, part, inputs=["b"], outputs=["d"])
    assert [value.name for value in onnx.load(part).graph.input] == ["b", "x"]
    (found,) = session(part).run(None, {"b": X, "x": X})
    np.testing.assert_array_equal(found, X + 1 + X)


def test_large_and_external_weights_are_stored(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((6, 5000)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    model = tiny_model(nodes, {"x": (1, 6)}, ["y"], {"w": w})
    (tmp_path / "outside").mkdir()
    for name, external in (("inside.onnx", False), ("outside/model.onnx", True)):
        onnx.save(model, tmp_path / name, save_as_external_data=external, location="w.bin")
        qglow.cut_model(tmp_path / name, tmp_path / "part.onnx", outputs=["a"])
        (found,) = session(tmp_path / "part.onnx").run(None, {"x": X})
        np.testing.assert_allclose(found, X @ w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "outputs", "said"),
    [
        (["bb"], ["d"], "is called 'bb'; did you mean 'b'"),
        ([], ["nothing"], "is called 'nothing'"),
        (["places"], ["b"], "'places' does not lead to b"),
        ([], ["x"], "nothing is left of .*: no node lies before 'x'; choose tensors further apart"),
        (["y"], [], "nothing is left of .*: no node lies before 'y'"),
        ([], ["b", "d", "b"], "'b' is named twice"),
        (["c", "c"], ["d"], "'c' is named twice"),
    ],
)
def test_cuts_that_make_no_model_are_refused(
    path: Path, tmp_path: Path, inputs: list[str], outputs: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        qglow.cut_model(path, tmp_path / "part.onnx", inputs=inputs, outputs=outputs)
    assert not (tmp_path / "part.onnx").exists()


def test_a_cut_inside_of_a_node_names_what_the_node_gives(tmp_path: Path) -> None:
    kinds = [helper.make_tensor_value_info("inner", TensorProto.FLOAT, [1, 6])]
    bodies = [
        helper.make_graph([helper.make_node(op, ["x"], ["inner"])], op, [], kinds) for op in ("Relu", "Neg")
    ]
    choice = helper.make_node("If", ["c"], ["made"], "choose", then_branch=bodies[0], else_branch=bodies[1])
    nodes = [choice, helper.make_node("Abs", ["made"], ["y"])]
    model = tiny_model(nodes, {"x": (1, 6)}, ["y"], {"c": np.array(True)})
    said = r"'inner' is computed inside of node 'choose' \(If\); .* choose what this one gives, 'made'"
    with pytest.raises(UsageError, match=said):
        qglow.cut_model(save(model, tmp_path), tmp_path / "part.onnx", outputs=["inner"])


def test_a_tensor_whose_type_nobody_knows_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("BiasGelu", ["x", "b"], ["g"], domain="com.microsoft")
    model = tiny_model([node, helper.make_node("Relu", ["g"], ["y"])], {"x": (1, 6)}, ["y"])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(6, np.float32), "b"))
    model.opset_import.add(domain="com.microsoft", version=1)
    with pytest.raises(UsageError, match="the type of 'g' is not known"):
        qglow.cut_model(save(model, tmp_path), tmp_path / "part.onnx", outputs=["g"])
