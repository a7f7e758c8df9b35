"""Inputs whose values are given, and inputs whose values have to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from qglow.cli.main import main
from qglow.core.errors import UndecidedError, UnsupportedError, UsageError
from qglow.graph.interpreter import Interpreter
from qglow.importer import import_model
from tests.unit.importer.tiny import assert_as_onnxruntime, save, session

X = np.random.default_rng(5).standard_normal((2, 6)).astype(np.float32)
INT64, FLOAT, BOOL, UINT8 = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL, TensorProto.UINT8
Inputs = dict[str, tuple[int, list[int | str]]]


def model(nodes: list[tuple[str, list[str], str]], inputs: Inputs, **attributes: object) -> ModelProto:
    """A model of these nodes, (operator, operands, result); the last result is y, the output."""
    every = [helper.make_node(kind, read, [out], **attributes) for kind, read, out in nodes]
    values = [helper.make_tensor_value_info(n, e, s) for n, (e, s) in inputs.items()]
    graph = helper.make_graph(every, "g", values, [helper.make_tensor_value_info("y", FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def reshaped() -> ModelProto:
    """A Reshape to sizes that two inputs give."""
    nodes = [("Concat", ["rows", "columns"], "sizes"), ("Reshape", ["x", "sizes"], "y")]
    inputs: Inputs = {"x": (FLOAT, [2, 6]), "rows": (INT64, ["n"]), "columns": (INT64, [1])}
    built = model(nodes, inputs)
    built.graph.node[0].attribute.append(helper.make_attribute("axis", 0))
    return built


def test_given_value_is_no_input_of_the_graph(tmp_path: Path) -> None:
    path = save(reshaped(), tmp_path)
    graph = import_model(path, values={"rows": [4], "columns": np.array([3])}).graph
    assert [value.name for value in graph.inputs] == ["x"]
    (expected,) = session(path).run(None, {"x": X, "rows": np.array([4]), "columns": np.array([3])})
    np.testing.assert_array_equal(Interpreter(graph).run({"x": X})["y"], expected)


def test_given_values_bind_symbols(tmp_path: Path) -> None:
    built = model([("Add", ["x", "bias"], "y")], {"x": (FLOAT, [1, "n"]), "bias": (FLOAT, ["n"])})
    (kind,) = import_model(save(built, tmp_path), values={"bias": [1.0, 2.0, 3.0]}).inputs
    assert kind[1].shape == (1, 3)


@pytest.mark.parametrize("native", [False, True])
def test_inputs_behind_a_parameter_are_asked_for(native: bool, tmp_path: Path) -> None:
    with pytest.raises(UndecidedError, match="inputs 'rows', 'columns' decide") as caught:
        import_model(save(reshaped(), tmp_path), native=native)
    assert caught.value.inputs == ("rows", "columns")


def test_what_is_only_asked_for_later_is_asked_for_too(tmp_path: Path) -> None:
    nodes = [("Reshape", ["x", "sizes"], "tall"), ("ReduceSum", ["tall", "axes"], "y")]
    path = save(model(nodes, {"x": (FLOAT, [2, 6]), "sizes": (INT64, [2]), "axes": (INT64, ["k"])}), tmp_path)
    with pytest.raises(UndecidedError) as caught:
        import_model(path, native=True)
    assert "sizes" in caught.value.inputs
    graph = import_model(path, native=True, values={"sizes": [3, 4], "axes": [1]}).graph
    assert graph.outputs[0].type.shape == (3, 1)


def test_parameter_that_keeps_the_shape_is_left_to_onnxruntime(tmp_path: Path) -> None:
    path = save(
        model([("CumSum", ["x", "axis"], "y")], {"x": (FLOAT, [2, 6]), "axis": (INT64, [])}), tmp_path
    )
    graph = import_model(path).graph
    assert [value.name for value in graph.inputs] == ["x", "axis"]
    assert_as_onnxruntime(graph, path, {"x": X, "axis": np.array(1)})
    note = import_model(path).bound_dimensions[-1]
    assert "becomes part of the program where 'axis' is a constant: --value axis=1 on" in note
    with pytest.raises(UndecidedError, match="input 'axis' decide"):
        import_model(path, native=True)
    found = Interpreter(import_model(path, native=True, values={"axis": 1}).graph).run({"x": X})["y"]
    np.testing.assert_allclose(found, X.cumsum(1), rtol=1e-5)


def test_condition_decides(tmp_path: Path) -> None:
    branches = {}
    for name, sizes in (("then_branch", [12]), ("else_branch", [3, 4])):
        constant = helper.make_node("Constant", [], [f"{name}_s"], value_ints=sizes)
        node = helper.make_node("Reshape", ["x", f"{name}_s"], [f"{name}_y"])
        result = helper.make_tensor_value_info(f"{name}_y", FLOAT, None)
        branches[name] = helper.make_graph([constant, node], name, [], [result])
    inputs: Inputs = {"x": (FLOAT, [2, 6]), "flat": (BOOL, [])}
    path = save(model([("If", ["flat"], "y")], inputs, **branches), tmp_path)
    with pytest.raises(UndecidedError, match="input 'flat' decide"):
        import_model(path)
    assert import_model(path, values={"flat": True}).graph.outputs[0].type.shape == (12,)
    assert import_model(path, values={"flat": [False]}).graph.outputs[0].type.shape == (3, 4)


def test_scale_of_an_input_of_integers_decides(tmp_path: Path) -> None:
    inputs: Inputs = {"x": (UINT8, [2, 6]), "scale": (FLOAT, []), "zero": (UINT8, [])}
    path = save(model([("DequantizeLinear", ["x", "scale", "zero"], "y")], inputs), tmp_path)
    with pytest.raises(UndecidedError) as caught:
        import_model(path, native=True)
    assert caught.value.inputs == ("scale", "zero")
    graph = import_model(path, native=True, values={"scale": 0.5, "zero": 3}).graph
    assert [value.name for value in graph.inputs] == ["x"]


def test_data_decide_nothing(tmp_path: Path) -> None:
    nodes = [("Cast", ["x"], "whole"), ("Reshape", ["x", "whole"], "y")]
    built = model(nodes, {"x": (FLOAT, [1 << 15])})
    built.graph.node[0].attribute.append(helper.make_attribute("to", INT64))
    with pytest.raises(UnsupportedError, match="the new shape"):
        import_model(save(built, tmp_path), native=True)


def test_operator_that_is_not_supported_is_refused_before_values_are_asked_for(tmp_path: Path) -> None:
    nodes = [("Multinomial", ["x"], "odd"), ("Reshape", ["x", "sizes"], "y")]
    path = save(model(nodes, {"x": (FLOAT, [2, 6]), "sizes": (INT64, [2])}), tmp_path)
    with pytest.raises(UnsupportedError, match="Multinomial"):
        import_model(path, native=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": [3, 4]}, "a value is given for 'size', but .* did you mean 'rows'|'columns'"),
        ({"rows": np.array([4], np.int32)}, "value of 'rows' is int32; the input is int64"),
        ({"rows": [4.5]}, r"value of 'rows': \[4.5\] does not convert to int64"),
        ({"rows": "four"}, "value of 'rows' is no array of numbers"),
        ({"rows": [[4], [3, 2]]}, "value of 'rows' is no array of numbers"),
        ({"columns": [1, 2]}, "columns=2 contradicts the model"),
    ],
)
def test_wrong_values_are_refused_in_one_line(
    values: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        import_model(save(reshaped(), tmp_path), values=values)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_shape_and_value_of_one_input_agree(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contradicts its value"):
        import_model(save(reshaped(), tmp_path), {"rows": [2]}, values={"rows": [4]})


def test_commands_take_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(reshaped(), tmp_path)
    assert main(["inspect", str(path)]) == 2
    assert "as in --value rows=..." in capsys.readouterr().err
    assert main(["inspect", str(path), "--value", "rows=4", "--value", "columns=3"]) == 0
    assert "<4 x 3>" in capsys.readouterr().out
