"""onnx's inference on models that are not trusted."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from qglow.interchange.inference import InferenceRefused, infer_types
from tests.unit.importer.tiny import tiny_model

Constants = dict[str, np.ndarray]


def sliced(nodes: list[NodeProto], constants: Constants) -> tuple[list[NodeProto], Constants]:
    """Nodes with a slice of what they give, and constants with its bounds."""
    cut = helper.make_node("Slice", ["wide", "starts", "ends"], ["y"])
    places = {"starts": np.array([0, 0]), "ends": np.array([1, 12])}
    return [*nodes, cut], places | constants


@pytest.mark.parametrize("sizes", [[-5, 24], [-1, 24]])
@pytest.mark.parametrize("by_node", [False, True])
def test_negative_sizes_are_refused_before_onnx_aborts(sizes: list[int], by_node: bool) -> None:
    constants = {} if by_node else {"sizes": np.array(sizes)}
    given = helper.make_node("Constant", [], ["sizes"], value=numpy_helper.from_array(np.array(sizes)))
    nodes, constants = sliced(
        [*([given] if by_node else []), helper.make_node("Expand", ["x", "sizes"], ["wide"])], constants
    )
    with pytest.raises(InferenceRefused, match="a size is negative"):
        infer_types(tiny_model(nodes, {"x": (1, 24)}, ["y"], constants))


def test_types_are_inferred() -> None:
    expand = helper.make_node("Expand", ["x", "sizes"], ["wide"])
    nodes, constants = sliced([expand], {"sizes": np.array([4, 24])})
    model = infer_types(tiny_model(nodes, {"x": (1, 24)}, ["y"], constants))
    (value,) = (value for value in model.graph.value_info if value.name == "wide")
    assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [4, 24]


def test_what_does_not_fit_is_refused_where_that_is_asked_for() -> None:
    model = tiny_model([helper.make_node("MatMul", ["x", "x"], ["y"])], {"x": (2, 3)}, ["y"])
    with pytest.raises(InferenceRefused):
        infer_types(model, strict=True)


def test_a_split_with_more_outputs_than_parts_is_refused() -> None:
    node = helper.make_node("Split", ["x"], ["a", "b", "y"], axis=0, num_outputs=2)
    with pytest.raises(InferenceRefused, match="more outputs than parts"):
        infer_types(tiny_model([node], {"x": (6, 3)}, ["y"], opset=18))


def test_parts_that_a_split_only_claims_to_have_are_refused() -> None:
    node = helper.make_node("Split", ["x"], ["a", "y"], axis=0, num_outputs=2**31)
    with pytest.raises(InferenceRefused, match="or far fewer"):
        infer_types(tiny_model([node], {"x": (6, 3)}, ["y"], opset=18))


@pytest.mark.parametrize("axis", [2**31, 2**63 - 1, -(2**63)])
def test_an_axis_beyond_32_bits_is_refused_before_onnx_crashes(axis: int) -> None:
    node = helper.make_node("LayerNormalization", ["x", "w"], ["y", "mean"], axis=axis)
    constants = {"w": np.ones(3, np.float32)}
    with pytest.raises(InferenceRefused, match="an axis of a LayerNormalization is beyond 32 bits"):
        infer_types(tiny_model([node], {"x": (6, 3)}, ["y"], constants, opset=17))


@pytest.mark.parametrize("operator", ["EyeLike", "RegexFullMatch", "ai.onnx.ml.LabelEncoder"])
def test_a_first_operand_that_is_left_out_is_refused_before_onnx_crashes(operator: str) -> None:
    domain, _, name = operator.rpartition(".")
    model = tiny_model([helper.make_node(name, [""], ["y"], domain=domain)], {"x": (6, 3)}, ["y"], opset=22)
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 4))
    with pytest.raises(InferenceRefused, match=f"the first operand of a {name} is missing"):
        infer_types(model)


@pytest.mark.parametrize("by_node", [False, True])
def test_elements_that_a_tensor_only_claims_to_have_are_refused(by_node: bool) -> None:
    tensor = numpy_helper.from_array(np.array([4]), "many")
    tensor.dims[:] = [2**40]
    nodes = [helper.make_node("Constant", [], ["many"], value=tensor)] if by_node else []
    nodes.append(helper.make_node("Add", ["many", "many"], ["y"]))
    model = tiny_model(nodes, {}, ["y"])
    if not by_node:
        model.graph.initializer.append(tensor)
    with pytest.raises(InferenceRefused, match="fewer elements than its shape says"):
        infer_types(model, follow_data=True)


@pytest.mark.parametrize("operator", ["Add", "Concat"])
def test_a_tensor_whose_data_lies_elsewhere_is_no_claim(operator: str) -> None:
    left_out = TensorProto(name="many", data_type=TensorProto.FLOAT, dims=[2**33], raw_data=b"")
    attributes = {"axis": 0} if operator == "Concat" else {}
    nodes = [helper.make_node(operator, ["many", "many"], ["y"], **attributes)]
    model = tiny_model(nodes, {"x": (1,)}, ["y"])
    model.graph.initializer.append(left_out)
    (found,) = infer_types(model, follow_data=True).graph.output
    assert found.type.tensor_type.shape.dim[0].dim_value == (2**34 if operator == "Concat" else 2**33)
