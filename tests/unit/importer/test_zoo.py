"""The real models: the imported graph computes what onnxruntime computes."""

from __future__ import annotations

import pytest

from qglow.graph.verifier import verify_graph
from qglow.importer import import_model
from tests.unit.importer.tiny import assert_as_onnxruntime
from tests.zoo import zoo_model

MODELS = (
    "digits",
    "mymodel",
    "cifar10_resnet20",
    "mlkws_ds_cnn_l",
    "squeezenet1.1",
    "mobilenetv2_tin202",
    "resnet50v2s3_tin202",
)


@pytest.mark.parametrize("name", MODELS)
def test_model_computes_what_onnxruntime_computes(name: str) -> None:
    path = zoo_model(name)
    graph = import_model(path).graph
    verify_graph(graph, "import")
    assert_as_onnxruntime(graph, path)


def test_larger_batch_is_the_same_model() -> None:
    path = zoo_model("digits")
    assert_as_onnxruntime(import_model(path, {"input": (3, 1, 8, 8)}).graph, path)
