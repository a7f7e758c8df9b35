"""Recurrent layers as ONNX nodes: onnxruntime gives what the graph interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.exporter.plain import export_float
from qglow.exporter.qdq import export_qdq
from qglow.graph.interpreter import Interpreter
from tests.suite.problem import Maker
from tests.suite.recurrence import LAYERS, layer
from tests.unit.importer.tiny import session

FLOATS = [make for make in LAYERS if make(np.random.default_rng(0)).name.endswith("float")]
INT8 = [
    layer("lstm", 6, 2, 37, True, ("peepholes", "lengths"), reverse=True, zero_point=5),
    layer("gru", 5, 3, 16, True, ("bias", "lengths"), linear_before_reset=True, zero_point=0),
    layer("gru", 5, 1, 20, True, zero_point=0),
    layer("rnn", 4, 2, 9, True, zero_point=-3),
]


@pytest.mark.parametrize("make", FLOATS)
def test_onnxruntime_runs_a_float_layer(make: Maker) -> None:
    problem = make(np.random.default_rng(1))
    expected = Interpreter(problem.graph).run(problem.inputs)
    names = list(expected)
    found = session(export_float(problem.graph)).run(names, problem.inputs)
    for name, value in zip(names, found, strict=True):
        assert np.allclose(value, expected[name], atol=1e-5, rtol=1e-5), name


@pytest.mark.parametrize("make", INT8)
def test_onnxruntime_differs_by_roundings_of_states_alone(make: Maker) -> None:
    """In onnxruntime the states are not rounded between steps."""
    problem = make(np.random.default_rng(1))
    expected = Interpreter(problem.graph).run(problem.inputs)
    names = list(expected)
    found = session(export_qdq(problem.graph)).run(names, problem.inputs)
    for name, value in zip(names, found, strict=True):
        noise = np.sqrt(np.mean((value - expected[name]) ** 2))
        assert noise < 2.0**-7, name
