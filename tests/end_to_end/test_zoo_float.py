"""Float programs of real models: against onnxruntime, and against themselves on other ISAs and batches."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.graph.interpreter import Interpreter
from qglow.report.oracle import OnnxruntimeModel
from qglow.toolchain import CompileOptions, compile_graph
from tests.end_to_end.zoo_flow import CASES, HOST, MODELS, NAMES, WITH_FMA, float_graph, inputs
from tests.zoo import zoo_model

TOLERANCE = 1e-4


@cache
def oracle(name: str, batch: int) -> dict[str, Array]:
    """onnxruntime's float32 outputs for the batch of the tests."""
    fed = inputs(name, batch)
    shapes = {key: array.shape for key, array in fed.items()}
    return OnnxruntimeModel(zoo_model(name), shapes=shapes)(fed)


@cache
def compiled_outputs(name: str, batch: int, isa: str) -> dict[str, Array]:
    executable = compile_graph(float_graph(name, batch), CompileOptions(isa=isa))
    return executable(inputs(name, batch))


def assert_close(found: dict[str, Array], name: str, batch: int) -> None:
    """Within 1e-4 of onnxruntime, relative to the larger of range and magnitude of each output."""
    for output, wanted in oracle(name, batch).items():
        assert found[output].shape == wanted.shape and found[output].dtype == wanted.dtype
        size = max(float(np.ptp(wanted)), float(np.max(np.abs(wanted))))
        error = float(np.max(np.abs(found[output] - wanted))) / size
        assert error <= TOLERANCE, f"{output}: {error:.2e} of its range"


@pytest.mark.parametrize(("name", "batch"), CASES)
def test_interpreter_agrees_with_onnxruntime(name: str, batch: int) -> None:
    assert_close(Interpreter(float_graph(name, batch)).run(inputs(name, batch)), name, batch)


@pytest.mark.parametrize("isa", HOST)
@pytest.mark.parametrize(("name", "batch"), CASES)
def test_compiled_program_agrees_with_onnxruntime(name: str, batch: int, isa: str) -> None:
    assert_close(compiled_outputs(name, batch, isa), name, batch)


@pytest.mark.skipif(len(WITH_FMA) < 2, reason="the host has no two ISAs with fused multiply-add")
@pytest.mark.parametrize(("name", "batch"), CASES)
def test_float_bits_do_not_depend_on_isa(name: str, batch: int) -> None:
    first, *others = (compiled_outputs(name, batch, isa) for isa in WITH_FMA)
    for other in others:
        for output, wanted in first.items():
            assert np.array_equal(other[output], wanted), output


@pytest.mark.skipif(not WITH_FMA, reason="the host has no fused multiply-add")
@pytest.mark.parametrize("name", NAMES)
def test_float_bits_do_not_depend_on_batch(name: str) -> None:
    if len(MODELS[name].batches) < 2:
        pytest.skip(f"the file of {name} fixes the batch")
    one, many = MODELS[name].batches
    isa = WITH_FMA[-1]
    alone, together = compiled_outputs(name, one, isa), compiled_outputs(name, many, isa)
    for output, wanted in alone.items():
        assert np.array_equal(together[output][:one], wanted), output
