"""Sparse constants, which the importer makes dense."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

import qglow
from qglow.core.errors import ModelError
from qglow.core.types import Array
from tests.unit.importer.tiny import session, tiny_model

SHAPE = (5, 7)
PLACES = np.array([0, 3, 11, 20, 34])
VALUES = np.array([0.5, -1.25, 2.0, 0.75, -3.0], np.float32)


def sparse(places: Array, name: str = "w", shape: tuple[int, ...] = SHAPE) -> SparseTensorProto:
    values = numpy_helper.from_array(VALUES, name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(places, "places"), shape)


def product() -> onnx.ModelProto:
    """y = x w, without w."""
    return tiny_model([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], {"x": [2, 5]}, ["y"])


def check(model: onnx.ModelProto) -> None:
    x = np.random.default_rng(31).normal(size=(2, 5)).astype(np.float32)
    (wanted,) = session(model).run(None, {"x": x})
    assert np.any(wanted)
    np.testing.assert_allclose(qglow.load_model(model).interpret({"x": x})["y"], wanted, atol=1e-5)


@pytest.mark.parametrize("pairs", [False, True])
def test_a_sparse_initializer_is_dense(pairs: bool) -> None:
    model = product()
    places = np.stack(np.unravel_index(PLACES, SHAPE), axis=1) if pairs else PLACES
    model.graph.sparse_initializer.append(sparse(places))
    check(model)


def test_a_constant_with_a_sparse_value_is_dense() -> None:
    model = product()
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse(PLACES)))
    check(model)


def test_a_sparse_constant_of_a_body_is_dense() -> None:
    constant = helper.make_node("Constant", [], ["v"], sparse_value=sparse(PLACES))
    result = helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 7])
    by_constant = helper.make_graph(
        [constant, helper.make_node("MatMul", ["x", "v"], ["z"])], "a", [], [result]
    )
    zero = helper.make_node("Mul", ["x", "nothing"], ["none"])
    other = helper.make_graph([zero, helper.make_node("MatMul", ["none", "u"], ["z"])], "b", [], [result])
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0),
        helper.make_node("Greater", ["largest", "limit"], ["above"]),
        helper.make_node("If", ["above"], ["y"], then_branch=by_constant, else_branch=other),
    ]
    constants = {
        "limit": np.float32(-9),
        "nothing": np.float32(0),
        "u": np.ones(SHAPE, np.float32),
    }
    check(tiny_model(nodes, {"x": [2, 5]}, ["y"], constants))


@pytest.mark.parametrize(
    ("places", "shape"),
    [
        (np.array([0, 3, 11, 20, 35]), SHAPE),
        (np.array([0, 3, 11, 20, -1]), SHAPE),
        (PLACES[:4], SHAPE),
        (PLACES.astype(np.int32), SHAPE),
        (np.full((5, 2), 6), SHAPE),
        (PLACES, ()),
    ],
)
def test_a_damaged_sparse_constant_is_named(places: Array, shape: tuple[int, ...]) -> None:
    model = product()
    model.graph.sparse_initializer.append(sparse(places, shape=shape))
    with pytest.raises(ModelError, match="sparse initializer 'w' is damaged: .*; export the model again"):
        qglow.load_model(model)
