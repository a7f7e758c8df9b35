"""A network of transposed convolutions, reductions and normalizations: import, int8, export, every ISA."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper

from qglow.exporter import export_qdq
from qglow.importer import import_model
from qglow.passes.pipeline import canonicalize
from qglow.profiling.profile import ModelReference
from qglow.profiling.profiler import profile
from qglow.profiling.samples import Sample
from qglow.quantization.pipeline import quantize_with
from qglow.recipe.schema import Recipe
from qglow.toolchain import CompiledEngine, CompileOptions, compile_graph
from tests.end_to_end.zoo_flow import RUNNABLE
from tests.unit.importer.cases import floats
from tests.unit.importer.tiny import assert_close, save, session, tiny_model


def test_int8_bits_are_those_of_every_isa_and_of_onnxruntime(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["r"]),
        node(
            "ConvTranspose",
            ["r", "wt", "bt"],
            ["t"],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            output_padding=[1, 1],
        ),
        node("Relu", ["t"], ["positive"]),
        node("ReduceMean", ["positive"], ["mean"], axes=[2]),
        node("Add", ["mean", "positive"], ["sum"]),
        node("ReduceMax", ["sum"], ["largest"], axes=[1]),
        node("Mul", ["largest", "sum"], ["product"]),
        node("InstanceNormalization", ["product", "sc", "bi"], ["n"]),
        node("Conv", ["n", "w2"], ["y"]),
    ]
    constants = {"w": floats(8, 3, 3, 3), "wt": floats(8, 6, 3, 3), "bt": floats(6)}
    constants |= {"sc": floats(6), "bi": floats(6), "w2": floats(4, 6, 1, 1)}
    path = save(tiny_model(nodes, {"x": [1, 3, 12, 12]}, ["y"], constants), tmp_path)
    graph = canonicalize(import_model(path).graph)
    random = np.random.default_rng(0)
    samples = [Sample(str(i), {"x": random.normal(size=(3, 12, 12)).astype(np.float32)}) for i in range(8)]
    reference = ModelReference(path, "0" * 64)
    profiled = profile(graph, samples, CompiledEngine(lambda batch: graph), model=reference, batch_size=1)
    statistics = profiled.check_matches(graph)
    quantized = quantize_with(graph, statistics, profiled.samples, Recipe()).graph
    in_float = [n.operator.name for n in quantized.nodes if not any(v.type.is_quantized for v in n.outputs)]
    assert in_float == ["Dequantize", "InstanceNormalization", "Conv"]
    fed = {"x": samples[0].inputs["x"][None]}
    first, *others = (compile_graph(quantized, CompileOptions(isa=isa))(fed)["y"] for isa in RUNNABLE)
    for other in others:
        np.testing.assert_array_equal(other, first)
    (exported,) = session(export_qdq(quantized), optimize=True).run(None, fed)
    assert_close(exported, first, "y in onnxruntime", tolerance=0.02)
