"""Fixed point as ONNX nodes: onnxruntime gives every bit of the interpreter."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from qglow.exporter.fixed_point import DOMAIN, PRODUCT
from qglow.exporter.operators import steps_in_fixed_point
from qglow.exporter.qdq import export_qdq
from qglow.graph.graph import Node
from qglow.graph.interpreter import Interpreter
from tests.suite.fixed_point import PROBLEMS
from tests.suite.problem import Maker
from tests.unit.importer.tiny import session


def shows_fixed_point(node: Node | None) -> bool:
    """Whether a node dequantizes what another one brings to int8 in fixed point."""
    if node is None or not node.operator.dequantizes:
        return False
    source = node.inputs[0]
    producer = None if source is None else source.producer
    return producer is not None and steps_in_fixed_point(producer) is not None


CASES = [pytest.param(make, id=str(number)) for number, make in enumerate(PROBLEMS)]


@pytest.mark.parametrize("make", CASES)
def test_onnxruntime_gives_the_same_bits(make: Maker) -> None:
    problem = make(np.random.default_rng(7))
    integers = [value.name for value in problem.graph.outputs if shows_fixed_point(value.producer)]
    expected = Interpreter(problem.graph).run(problem.inputs)
    model = export_qdq(problem.graph)
    assert any(node.domain == DOMAIN and node.op_type == PRODUCT for node in model.graph.node)
    found = session(model).run(integers, problem.inputs)
    for name, actual in zip(integers, found, strict=True):
        np.testing.assert_array_equal(actual, expected[name], err_msg=f"{problem.name}: {name}")


def test_the_function_is_stated_once() -> None:
    problem = PROBLEMS[0](np.random.default_rng(7))
    model = export_qdq(problem.graph)
    onnx.checker.check_model(model, full_check=True)
    assert [function.name for function in model.functions] == [PRODUCT]
    calls = [node for node in model.graph.node if node.op_type == PRODUCT]
    assert len(calls) > 1
