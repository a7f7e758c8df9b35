"""Branches and loops as ONNX: onnxruntime gives what the graph does, and the model comes back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qglow.exporter.plain import export_float
from qglow.exporter.qdq import export_qdq
from qglow.graph.interpreter import Interpreter
from qglow.importer import import_model
from tests.fuzzing import seed_of
from tests.suite.control import PROBLEMS
from tests.suite.problem import Maker, Problem
from tests.unit.importer.tiny import save, session

MAKERS = [
    pytest.param(make, id=f"{number}-{make(np.random.default_rng(1)).name}")
    for number, make in enumerate(PROBLEMS)
]


def drawn(make: Maker) -> Problem:
    return make(np.random.default_rng(seed_of("control")))


@pytest.mark.parametrize("make", MAKERS)
def test_onnxruntime_and_a_second_import_give_the_same(make: Maker, tmp_path: Path) -> None:
    problem = drawn(make)
    wanted = Interpreter(problem.graph).run(problem.inputs)
    int8 = any(v.type.is_quantized for region in problem.graph.regions() for v in region.values())
    for export in [export_qdq] if int8 else [export_qdq, export_float]:
        path = save(export(problem.graph), tmp_path)
        runtime = session(path)
        given = {value.name for value in runtime.get_inputs()}
        found = runtime.run(None, {n: a for n, a in problem.inputs.items() if n in given})
        for value, array in zip(problem.graph.outputs, found, strict=True):
            # A last bit of a float may become a step of an integer.
            np.testing.assert_allclose(array, wanted[value.name], rtol=1e-5, atol=0.1 if int8 else 1e-5)
        again = import_model(path, native=True).graph
        taken = {value.name for value in again.inputs}
        results = Interpreter(again).run({n: a for n, a in problem.inputs.items() if n in taken})
        for value in problem.graph.outputs:
            np.testing.assert_allclose(results[value.name], wanted[value.name], rtol=1e-5, atol=1e-5)
