"""Canonical graphs of the real models: what is left, what is refused, and that they print and parse."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.passes import PassLog
from qglow.graph.interpreter import Interpreter
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.importer.model import import_model
from qglow.passes import canonicalize
from tests.unit.graph.random_graphs import random_inputs
from tests.zoo import zoo_model

OPERATORS = {
    "digits": "Add Conv Gemm GlobalAveragePool Reshape",
    "mymodel": "Gemm Sigmoid",
    "squeezenet1.1": "Concat Conv GlobalAveragePool MaxPool Reshape",
    "mobilenetv2_tin202": "Add Conv Gemm GlobalAveragePool Reshape",
    "resnet50v2s3_tin202": "Add Affine Conv Gemm GlobalAveragePool MaxPool Reshape",
    "cifar10_resnet20": "Add Conv Gemm GlobalAveragePool Pad Reshape Slice",
    "mlkws_ds_cnn_l": "AveragePool Conv Gemm Reshape Softmax",
}


@pytest.mark.parametrize("name", OPERATORS)
def test_only_these_operators_are_left_and_the_results_stay(name: str) -> None:
    graph = import_model(zoo_model(name)).graph
    log = PassLog()
    result = canonicalize(graph, log)
    assert sorted({node.operator.name for node in result.nodes}) == OPERATORS[name].split()
    text = print_graph(result)
    assert print_graph(parse_graph(text, constant_data(result))) == text
    assert {entry.pass_name for entry in log.entries if not entry.applied} <= {"fold-batchnorm"}
    inputs = random_inputs(graph)
    expected, found = Interpreter(graph).run(inputs), Interpreter(result).run(inputs)
    for output, array in expected.items():
        error = float(np.max(np.abs(found[output] - array)))
        assert error <= 1e-5 * float(np.max(np.abs(array)))
