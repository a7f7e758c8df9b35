"""Every other real model that qglow takes: compiled in float, and held against onnxruntime."""

from __future__ import annotations

import pytest

from qglow.report.metrics import error_between
from qglow.report.oracle import SIGMOID_ERROR, OnnxruntimeModel
from qglow.toolchain import compile_graph
from tests.end_to_end.zoo_flow import MODELS, THOROUGH, float_graph, inputs
from tests.zoo import zoo_model

TOLERANCE = 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if name not in THOROUGH])
def test_compiled_float_program_agrees_with_onnxruntime(name: str) -> None:
    fed = inputs(name, 1)
    found = compile_graph(float_graph(name, 1))(fed)
    shapes = {key: array.shape for key, array in fed.items()}
    for output, wanted in OnnxruntimeModel(zoo_model(name), shapes=shapes)(fed).items():
        assert found[output].shape == wanted.shape
        error = error_between(found[output], wanted)
        assert error.relative <= TOLERANCE or error.max_abs <= SIGMOID_ERROR, output
