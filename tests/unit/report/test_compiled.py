"""The reports over native code: what tests with the interpreter cannot show."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import ElementType, Quantization, TensorType
from qglow.graph.builder import GraphBuilder
from qglow.graph.ops.quantize import Dequantize
from qglow.report.bench import bench
from qglow.report.contenders import of_executable, random_inputs
from qglow.report.layers import compare_layers
from qglow.report.runner import InterpretedGraph
from qglow.toolchain import CompileOptions, compile_graph
from tests.runtimes import PLAIN
from tests.unit.report.digits import data, example
from tests.unit.report.models import Tapped


def test_observed_code_is_the_interpreter_at_every_node() -> None:
    """The same accumulated error, to the bit: the tap finds every value, in the graph's axis order."""
    model = example()
    graph = model.quantized.graph
    observed = compile_graph(graph, CompileOptions(isa=PLAIN, observe=True))
    native = compare_layers(model.float_graph, graph, data("test.npz", 2), observed=observed)
    reference = compare_layers(model.float_graph, graph, data("test.npz", 2), observed=Tapped(graph))
    assert all(layer.accumulated is not None for layer in native.layers)
    integers = [i for i, layer in enumerate(native.layers) if layer.result.is_quantized]
    assert [native.layers[i].accumulated for i in integers] == [
        reference.layers[i].accumulated for i in integers
    ]


@pytest.mark.parametrize("isa", [PLAIN, "reference"])
def test_integers_are_bound_in_the_form_of_the_target(isa: str) -> None:
    builder = GraphBuilder("integers")
    kind = TensorType(ElementType.INT8, (2, 3), Quantization.per_tensor(0.5, -3))
    x = builder.input("x", kind)
    graph = builder.finish(builder.node(Dequantize(), x, name="y"))
    of_executable(compile_graph(graph, CompileOptions(isa=isa)), {"x": np.zeros((2, 3), np.int8)})()


def test_bound_programs_run_and_are_timed() -> None:
    graph = example().quantized.graph
    executable = compile_graph(graph, CompileOptions(isa=PLAIN))
    inputs = random_inputs(executable.inputs)
    result = bench({"int8": of_executable(executable, inputs)}, alternations=2, warmup=1)
    assert result.latencies["int8"].median_ms > 0.0
    expected = InterpretedGraph(graph)(inputs)["logits"]
    assert np.allclose(executable(inputs)["logits"], expected, rtol=1e-6, atol=1e-5)
