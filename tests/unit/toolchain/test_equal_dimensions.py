"""Dimensions that are always equal, and have a name of their own in each input."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.core.errors import QglowError, UnsupportedError
from tests.unit.importer.tiny import tiny_model


@pytest.fixture
def model() -> qglow.Model:
    """The sum of two inputs, the rows of which are as many."""
    nodes = [helper.make_node("Add", ["x", "z"], ["y"])]
    return qglow.load_model(tiny_model(nodes, {"x": ("a", 4), "z": ("b", 4)}, ["y"]).SerializeToString())


def test_an_error_says_which_dimensions_may_be_equal(model: qglow.Model) -> None:
    with pytest.raises(QglowError, match="where they are always equal, give 'b' as 'a'"):
        model.compile(bounds={"a": 8, "b": 8})
    program = model.compile(bounds={"a": 8, "b": "a"})
    x, z = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(program({"x": x, "z": z})["y"], x + z)


def test_dimensions_of_other_bounds_are_not_said_to_be_equal(model: qglow.Model) -> None:
    with pytest.raises(QglowError) as refused:
        model.compile(bounds={"a": 8, "b": 16})
    assert "always equal" not in str(refused.value)


def test_an_error_of_a_range_has_its_lines_apart() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], end=1),
        helper.make_node("Concat", ["rows", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["z", "target"], ["y"]),
    ]
    inputs, rest = {"x": ("a", 4), "z": ("b", 4)}, np.array([-1, 4])
    made = tiny_model(nodes, inputs, ["y"], {"rest": rest}, opset=15)
    with pytest.raises(UnsupportedError, match="no program takes several sizes") as refused:
        qglow.load_model(made.SerializeToString()).save_program(
            "unused.qglow", shapes={"x": ("1..40", 4), "z": ("1..40", 4)}
        )
    assert refused.value.details[-1].endswith("give 'b' as 'a'")
    assert "always equal" not in str(refused.value.args[0])
