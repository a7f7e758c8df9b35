"""Nine published topologies with drawn weights: float, int8, every ISA, and onnxruntime's view of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.exporter import export_qdq
from qglow.graph.graph import Graph
from qglow.importer import import_model
from qglow.passes.pipeline import canonicalize
from qglow.profiling.profile import ModelReference
from qglow.profiling.profiler import profile
from qglow.profiling.samples import Sample
from qglow.quantization.pipeline import QuantizedGraph, quantize_with
from qglow.quantization.report import is_int8
from qglow.recipe.schema import Recipe
from qglow.report.layer_report import LayerReport
from qglow.report.layers import compare_layers
from qglow.report.metrics import error_between
from qglow.report.oracle import OnnxruntimeModel
from qglow.toolchain import CompiledEngine, compile_graph
from scripts.benchmarks.models.drawn import write_network
from scripts.benchmarks.models.light_networks import NETWORKS, light_network
from tests.end_to_end.bits import Tensors, assert_compiled_tensors_equal, interpreted_tensors
from tests.end_to_end.zoo_flow import HOST, RUNNABLE

pytestmark = pytest.mark.slow

CALIBRATED = 4
TOLERANCE = 1e-4
LEAST_EQUAL = 0.99999
IN_FLOAT = {"Quantize", "Dequantize", "LRN", "Softmax"}
"""What is not int8 here, by its policy; everything else has to be."""


@dataclass
class Network:
    """A network on its way. Stages are kept as long as its tests run."""

    name: str
    path: Path
    samples: list[Sample]

    @cached_property
    def graph(self) -> Graph:
        return canonicalize(import_model(self.path).graph)

    @cached_property
    def quantized(self) -> QuantizedGraph:
        engine = CompiledEngine(lambda batch: self.graph)
        reference = ModelReference(self.path, "0" * 64)
        profiled = profile(self.graph, self.samples[:CALIBRATED], engine, model=reference, batch_size=1)
        statistics = profiled.check_matches(self.graph)
        return quantize_with(self.graph, statistics, profiled.samples, Recipe())

    @cached_property
    def qdq(self) -> bytes:
        return export_qdq(self.quantized.graph).SerializeToString()

    @cached_property
    def fed(self) -> dict[str, Array]:
        """A sample that did not calibrate."""
        return {name: array[None] for name, array in self.samples[CALIBRATED].inputs.items()}

    @cached_property
    def interpreted(self) -> Tensors:
        return interpreted_tensors(self.quantized.graph, self.fed)

    @cached_property
    def layers(self) -> LayerReport:
        model = self.quantized
        return compare_layers(model.source, model.graph, self.samples[CALIBRATED : CALIBRATED + 1])


ISAS = [pytest.param(isa, marks=[] if isa in HOST[-1:] else [pytest.mark.sweep]) for isa in RUNNABLE]
"""The best one in CI; trained models run on the others."""


IN_CI = ("shufflenet", "squeezenet")
SHAPES = [pytest.param(n, marks=[] if n in IN_CI else [pytest.mark.sweep]) for n in NETWORKS]
"""Large networks take minutes; trained models of their kinds are tested in CI."""


@pytest.fixture(scope="module", params=SHAPES)
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """One network after the other: the largest takes half a gigabyte a copy."""
    folder = tmp_path_factory.mktemp("light")
    path, data = write_network(light_network(request.param), request.param, folder, CALIBRATED + 1)
    with np.load(data) as stacked:
        [(name, images)] = stacked.items()
    yield Network(request.param, path, [Sample(str(i), {name: image}) for i, image in enumerate(images)])
    path.unlink()


def test_float_program_agrees_with_onnxruntime(network: Network) -> None:
    found = compile_graph(network.graph)(network.fed)
    for output, wanted in OnnxruntimeModel(network.path)(network.fed).items():
        assert np.ptp(wanted) > 0
        assert error_between(found[output], wanted).relative <= TOLERANCE


def test_everything_with_an_int8_form_is_int8(network: Network) -> None:
    nodes = network.quantized.graph.nodes
    assert {n.operator.name for n in nodes if not is_int8(n)} <= IN_FLOAT


@pytest.mark.parametrize("isa", ISAS)
def test_every_int8_tensor_equals_the_interpreters(network: Network, isa: str) -> None:
    graph = network.quantized.graph
    assert_compiled_tensors_equal(graph, network.fed, isa, network.interpreted, deployed=isa == HOST[-1])


def test_onnxruntime_loads_the_export_and_gives_nearly_the_same(network: Network) -> None:
    found = compile_graph(network.quantized.graph)(network.fed)
    for output, wanted in OnnxruntimeModel(network.qdq, exact_sums=True)(network.fed).items():
        assert error_between(found[output], wanted).sqnr_db > 10.0


def test_every_int8_node_equals_onnxruntimes(network: Network) -> None:
    layers = network.layers
    assert not [x.node for x in layers.layers if x.match is None and x.result.is_quantized]
    exact = layers.matches(optimized=True)
    assert exact.elements > 0 and exact.equal >= LEAST_EQUAL and exact.max_step <= 1
    assert layers.matches(optimized=False).max_step <= 1
