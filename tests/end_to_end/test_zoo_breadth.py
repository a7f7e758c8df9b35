"""Every real model that qglow takes: imported, made canonical, compiled, and held against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.importer import import_model
from qglow.passes import canonicalize
from qglow.report.oracle import OnnxruntimeModel
from qglow.toolchain import CompileOptions, compile_graph
from tests.zoo import zoo_model

TOLERANCE = 1e-4
MODELS = (
    "cifar10_resnet32",
    "deeplabv3_mnv2_voc",
    "fastestdet",
    "mlkws_dnn_l",
    "mlperftiny_ad01",
    "mlperftiny_kws_dscnn",
    "mlperftiny_resnet8",
    "mlperftiny_vww96",
    "mnist_8",
    "mobilenet_v1_0.25_224",
    "squeezenet1.1_caffe",
    "super_resolution_10",
    "unlabelled/ultraface_rfb320",
    "unlabelled/yunet_n_320",
    "yolox_nano",
)
BYTES = ("unlabelled/yunet_n_320", "yolox_nano")
"""Models that take images of 0 to 255."""


def fed(name: str, graph: Graph) -> dict[str, Array]:
    """Inputs of the size that the model expects, drawn evenly."""
    random = np.random.default_rng(0)
    high = 255.0 if name in BYTES else 1.0
    return {v.name: random.uniform(0.0, high, v.type.shape).astype(np.float32) for v in graph.inputs}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_compiled_float_program_agrees_with_onnxruntime(name: str) -> None:
    path = zoo_model(name)
    graph = canonicalize(import_model(path).graph)
    inputs = fed(name, graph)
    found = compile_graph(graph, CompileOptions())(inputs)
    shapes = {key: array.shape for key, array in inputs.items()}
    for output, wanted in OnnxruntimeModel(path, shapes=shapes)(inputs).items():
        size = max(float(np.ptp(wanted)), float(np.max(np.abs(wanted))), 1e-30)
        error = float(np.max(np.abs(found[output] - wanted))) / size
        assert found[output].shape == wanted.shape and error <= TOLERANCE, f"{output}: {error:.2e}"
