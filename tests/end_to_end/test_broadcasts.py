"""One tensor that is spread along different axes where a node reads it twice."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

import qglow
from tests.unit.importer.tiny import session, tiny_model

node = helper.make_node
COUNT = 16
AXES = {"first": np.array([0]), "last": np.array([1]), "w": np.eye(COUNT, dtype=np.float32)[::-1].copy()}
VIEWS = [node("Unsqueeze", ["x", "first"], ["row"]), node("Unsqueeze", ["x", "last"], ["column"])]
FORMS: dict[str, list[NodeProto]] = {
    "distances": [node("Sub", ["row", "column"], ["d"]), node("Abs", ["d"], ["y"])],
    "both factors": [
        node("Relu", ["a"], ["b"]),
        node("Mul", ["b", "row"], ["c"]),
        node("Mul", ["c", "column"], ["y"]),
    ],
    "behind a product": [
        node("MatMul", ["a", "w"], ["b"]),
        node("Mul", ["b", "row"], ["c"]),
        node("Mul", ["c", "column"], ["y"]),
    ],
    "terms behind a product": [
        node("MatMul", ["a", "w"], ["b"]),
        node("Add", ["b", "column"], ["c"]),
        node("Add", ["c", "row"], ["y"]),
    ],
    "pairs": [
        node("Mul", ["row", "column"], ["c"]),
        node("Cast", ["c"], ["d"], to=TensorProto.BOOL),
        node("Where", ["d", "a", "c"], ["y"]),
    ],
}
"""Nodes behind `row`, x as [1, COUNT], and `column`, x as [COUNT, 1]; a: [COUNT, COUNT]."""


@pytest.mark.parametrize("isa", ["generic", "avx2", None])
@pytest.mark.parametrize("form", FORMS)
def test_a_tensor_is_spread_along_two_axes(form: str, isa: str | None) -> None:
    """As in masks of pairs, distances of positions, and normalised adjacency."""
    model = tiny_model([*VIEWS, *FORMS[form]], {"x": (COUNT,), "a": (COUNT, COUNT)}, ["y"], AXES, opset=17)
    random = np.random.default_rng(0)
    given = {
        "x": random.integers(-2, 3, COUNT).astype(np.float32),
        "a": random.normal(size=(COUNT, COUNT)).astype(np.float32),
    }
    (wanted,) = session(model).run(None, given)
    source = qglow.load_model(model.SerializeToString())
    found = source.compile(isa=isa)(given)["y"]
    assert found.tobytes() == source.compile(isa="reference")(given)["y"].tobytes()
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
