"""Models whose inputs have no batch in common: states, numbers without axes, empty tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.core.errors import UsageError
from tests.unit.importer.cases import floats
from tests.unit.importer.tiny import save, tiny_model


def test_a_model_with_states_is_profiled_sample_by_sample(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["state", "w"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Mul", ["c", "gain"], ["y"]),
        helper.make_node("Concat", ["state", "none"], ["next"], axis=0),
    ]
    shapes = {"x": (1, 4), "state": (2, 1, 4), "gain": (), "none": (0, 1, 4)}
    model = qglow.load_model(save(tiny_model(nodes, shapes, ["y", "next"], {"w": floats(4, 5)}), tmp_path))
    data = {"x": floats(3, 4)} | {name: floats(3, *shapes[name]) for name in ("state", "gain", "none")}
    profile = model.profile(data)
    assert profile.samples == 3 and model.batch_size == 1
    quantized = model.quantize(profile)
    feeds = {name: data[name][0].reshape(shapes[name]) for name in shapes}
    found, same = quantized.compile()(feeds), quantized.interpret(feeds)
    expected = model.interpret(feeds)
    for name in ("y", "next"):
        np.testing.assert_array_equal(found[name], same[name])
        np.testing.assert_allclose(found[name], expected[name], atol=0.1 * np.abs(expected[name]).max())
    with pytest.raises(UsageError, match="no common first dimension"):
        model.profile(data, batch_size=2)
