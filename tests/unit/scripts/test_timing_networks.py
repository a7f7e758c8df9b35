"""The networks for timing have the sizes that are published for them."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import shape_inference

from qglow.report.oracle import OnnxruntimeModel
from scripts.benchmarks.models.timing_networks import timing_network

# Parameters without batch normalizations, multiply-adds of convolutions and the classifier.
PUBLISHED = {"mobilenet_v1_224": (4.2e6, 569e6), "mobilenet_v2_224": (3.5e6, 300e6)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_size_is_as_published(name: str) -> None:
    model = timing_network(name)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    parameters, products = PUBLISHED[name]
    assert sum(map(math.prod, shapes.values())) == pytest.approx(parameters, rel=0.02)
    inferred = shape_inference.infer_shapes(model)
    sizes = {value.name: value.type.tensor_type.shape for value in inferred.graph.value_info}
    done = 0
    for node in model.graph.node:
        if node.op_type == "Conv":
            pixels = math.prod(d.dim_value for d in sizes[node.output[0]].dim[2:])
            done += pixels * math.prod(shapes[node.input[1]])
        if node.op_type == "Gemm":
            done += math.prod(shapes[node.input[1]])
    assert done == pytest.approx(products, rel=0.02)


def test_network_is_the_same_each_time_and_runs() -> None:
    model = timing_network("mobilenet_v2_224")
    onnx.checker.check_model(model)
    assert timing_network("mobilenet_v2_224").SerializeToString() == model.SerializeToString()
    session = OnnxruntimeModel(model.SerializeToString())
    random = np.random.default_rng(0)
    [answer] = session({"input": random.standard_normal((1, 3, 224, 224), np.float32)}).values()
    assert answer.shape == (1, 1000) and np.all(np.isfinite(answer)) and np.ptp(answer) > 0
