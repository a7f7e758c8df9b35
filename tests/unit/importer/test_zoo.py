"""The real models: the imported graph, and its canonical form, compute what onnxruntime computes."""

from __future__ import annotations

import pytest

from qglow.graph.verifier import verify_graph
from qglow.importer import import_model
from qglow.passes import canonicalize
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
    "squeezenet1.1_caffe",
    "mnist_8",
    "mlperftiny_ad01",
    "mlperftiny_kws_dscnn",
    "mlperftiny_resnet8",
    "mlperftiny_vww96",
    "fastestdet",
    "yolox_nano",
    "llama_stories260k",
)


@pytest.mark.parametrize("name", MODELS)
def test_model_computes_what_onnxruntime_computes(name: str) -> None:
    path = zoo_model(name)
    graph = import_model(path).graph
    verify_graph(graph, "import")
    assert_as_onnxruntime(graph, path)
    assert_as_onnxruntime(canonicalize(graph), path)


@pytest.mark.parametrize("name", ["digits", "cifar10_resnet20", "mlkws_ds_cnn_l"])
def test_larger_batch_is_the_same_model(name: str) -> None:
    path = zoo_model(name)
    graph = import_model(path, default_batch=3).graph
    assert graph.inputs[0].type.shape[0] == graph.outputs[0].type.shape[0] == 3
    assert_as_onnxruntime(graph, path)


def test_branches_that_shapes_choose_are_imported_natively() -> None:
    """Three are within one another, around a recurrent layer."""
    shapes = {"input": (1, 512), "state": (2, 1, 128)}
    graph = import_model(zoo_model("unlabelled/silero_vad_16k_op15"), shapes, native=True).graph
    kinds = [node.operator.name for node in graph.nodes]
    assert "Recurrence" in kinds and "If" not in kinds
