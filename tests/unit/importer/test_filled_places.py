"""Places of a mask that become one number, as exporters write `hidden[~mask] = 0`."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import qglow
from qglow.core.errors import QglowError
from qglow.core.types import Array
from tests.unit.importer.tiny import session, tiny_model

node = helper.make_node
NUMBERS = {
    "axis": np.array([2]),
    "rest": np.array([-1]),
    "wide": np.array([6]),
    "number": np.array(-3, np.float32),
    "two": np.array([1, 2], np.float32),
}
MASK = [node("Cast", ["mask"], ["known"], to=TensorProto.BOOL), node("Not", ["known"], ["dropped"])]
PLACES = [node("NonZero", ["where"], ["found"]), node("Transpose", ["found"], ["places"], perm=[1, 0])]
FORMS = {
    "dynamo": [
        *MASK,
        node("Unsqueeze", ["dropped", "axis"], ["column"]),
        node("Shape", ["x"], ["shape"], start=0),
        node("Expand", ["column", "shape"], ["where"]),
        *PLACES,
        node("Reshape", ["dropped", "rest"], ["flat"]),
        node("Cast", ["flat"], ["ones"], to=TensorProto.INT64),
        node("ReduceSum", ["ones"], ["total"], keepdims=1),
        node("Concat", ["total", "wide"], ["many"], axis=0),
        node("Expand", ["number", "many"], ["grid"]),
        node("Reshape", ["grid", "rest"], ["updates"]),
    ],
    "inverted": [
        *MASK,
        node("Unsqueeze", ["known", "axis"], ["column"]),
        node("Shape", ["x"], ["shape"]),
        node("Expand", ["column", "shape"], ["kept"]),
        node("Not", ["kept"], ["where"]),
        *PLACES,
        node("Shape", ["places"], ["many"], start=0, end=1),
        node("ConstantOfShape", ["many"], ["updates"]),
    ],
    "rows": [
        *MASK,
        node("Identity", ["dropped"], ["where"]),
        *PLACES,
        node("Shape", ["places"], ["total"], start=0, end=1),
        node("Concat", ["total", "wide"], ["many"], axis=0),
        node("Expand", ["number", "many"], ["updates"]),
    ],
}


def model(nodes: list[NodeProto], mask: tuple[int | str, ...] = ("N", "T"), **attributes: str) -> ModelProto:
    fill = node("ScatterND", ["x", "places", "updates"], ["filled"], **attributes)
    inputs: dict[str, tuple[int | str, ...]] = {"x": ("N", "T", 6), "mask": mask}
    made = tiny_model([*nodes, fill, node("Relu", ["filled"], ["y"])], inputs, ["y"], NUMBERS, opset=18)
    made.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    return made


def masks(batch: int, length: int) -> list[Array]:
    drawn = np.random.default_rng(0).integers(0, 2, (batch, length))
    return [drawn, np.ones_like(drawn), np.zeros_like(drawn)]


@pytest.mark.parametrize("form", FORMS)
def test_the_places_of_a_mask_are_filled(form: str) -> None:
    """No input decides how many there are, so that sizes stay open and may be bounded."""
    made = model(FORMS[form])
    source = qglow.load_model(made.SerializeToString())
    free, bounded = source.compile(), source.compile(bounds={"N": 8, "T": 8})
    for batch, length in ((2, 5), (1, 8), (3, 3)):
        x = np.random.default_rng(1).normal(size=(batch, length, 6)).astype(np.float32)
        for mask in masks(batch, length):
            given = {"x": x, "mask": mask}
            (wanted,) = session(made).run(None, given)
            np.testing.assert_array_equal(free(given)["y"], wanted)
            np.testing.assert_array_equal(bounded(given)["y"], wanted)
    graph = source.at({"x": (2, 4, 6), "mask": (2, 4)}).graph
    kinds = {each.operator.name for each in graph.nodes}
    assert kinds <= {"Cast", "Not", "Reshape", "Expand", "Where", "Relu"}


@pytest.mark.parametrize(
    ("nodes", "mask", "attributes"),
    [
        (FORMS["rows"], (1, "T"), {}),  # of the first sample alone
        (FORMS["rows"], ("N", "T"), {"reduction": "add"}),
        ([*FORMS["rows"][:-2], node("Tile", ["two", "total"], ["updates"])], ("N", "T"), {}),
    ],
)
def test_other_updates_are_not_taken_for_it(
    nodes: list[NodeProto], mask: tuple[int | str, ...], attributes: dict[str, str]
) -> None:
    source = qglow.load_model(model(nodes, mask, **attributes).SerializeToString())
    try:
        graph = source.at({"x": (2, 4, 6), "mask": (1 if mask[0] == 1 else 2, 4)}).graph
    except QglowError as error:
        assert "decide" in str(error)
    else:
        assert not any(each.operator.name == "Where" for each in graph.nodes)
