"""ArgMax and TopK behind int8 work: they rank integers where there are any, as onnxruntime does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from qglow.core.types import Array
from qglow.exporter import export_qdq
from qglow.graph.graph import Graph
from qglow.importer import import_model
from qglow.passes.pipeline import canonicalize
from qglow.profiling.profile import ModelReference
from qglow.profiling.profiler import profile
from qglow.profiling.samples import Sample
from qglow.quantization.imported import quantize_imported
from qglow.quantization.pipeline import quantize_with
from qglow.quantization.report import QuantizationReport
from qglow.recipe.schema import Recipe
from qglow.toolchain import CompiledEngine, CompileOptions, compile_graph
from tests.end_to_end.zoo_flow import RUNNABLE
from tests.unit.importer.cases import floats, ints
from tests.unit.importer.tiny import save, session, tiny_model

SHAPE = (3, 12, 12)
SAMPLES = [
    Sample(str(i), {"x": np.random.default_rng(i).normal(size=SHAPE).astype(np.float32)}) for i in range(8)
]
SEGMENTS = [
    helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["a"], ["r"]),
    helper.make_node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
    helper.make_node("ArgMax", ["m"], ["segments"], axis=1, keepdims=0),
    helper.make_node("TopK", ["m", "k"], ["best", "places"], axis=-1),
]
RESULTS = {"segments": TensorProto.INT64, "best": TensorProto.FLOAT, "places": TensorProto.INT64}


def imported(
    nodes: list[NodeProto], outputs: dict[str, int], constants: dict[str, Array], folder: Path
) -> Graph:
    model = tiny_model(nodes, {"x": [1, *SHAPE]}, list(outputs), constants)
    for value in model.graph.output:
        value.type.tensor_type.elem_type = outputs[value.name]
    return canonicalize(import_model(save(model, folder)).graph)


def quantized(graph: Graph) -> tuple[Graph, QuantizationReport]:
    reference = ModelReference(Path("tiny.onnx"), "0" * 64)
    found = profile(graph, SAMPLES, CompiledEngine(lambda batch: graph), model=reference, batch_size=1)
    options = Recipe(assert_all_quantized=True)
    result = quantize_with(graph, found.check_matches(graph), found.samples, options)
    return result.graph, result.report


def inputs_of(graph: Graph, operator: str) -> list[str]:
    nodes = [node for node in graph.nodes if node.operator.name == operator]
    return [str(node.input_types()[0]).partition("[")[0].partition("<")[0] for node in nodes]


def test_places_in_int8_are_those_of_every_isa_and_of_onnxruntime(tmp_path: Path) -> None:
    graph = imported(SEGMENTS, RESULTS, {"w": floats(21, 3, 3, 3), "k": ints(3)}, tmp_path)
    int8, report = quantized(graph)
    for operator in ("ArgMax", "TopK", "TopKIndices"):
        assert inputs_of(int8, operator) == ["i8"]
    assert not report.float_nodes
    fed = {"x": SAMPLES[0].inputs["x"][None]}
    first, *others = (compile_graph(int8, CompileOptions(isa=isa))(fed) for isa in RUNNABLE)
    exported = export_qdq(int8)
    for runner in (session(exported, optimize=True), session(exported)):
        others.append(dict(zip(RESULTS, runner.run(list(RESULTS), fed), strict=True)))
    for other in others:
        for name in RESULTS:
            assert other[name].dtype == first[name].dtype
            np.testing.assert_array_equal(other[name], first[name], name)


def test_a_model_that_is_quantized_already_ranks_its_integers(tmp_path: Path) -> None:
    graph = imported(SEGMENTS, RESULTS, {"w": floats(21, 3, 3, 3), "k": ints(3)}, tmp_path)
    int8, _ = quantized(graph)
    onnx.save(export_qdq(int8), tmp_path / "qdq.onnx")
    again = quantize_imported(canonicalize(import_model(tmp_path / "qdq.onnx").graph)).graph
    assert inputs_of(again, "ArgMax") == inputs_of(again, "TopKIndices") == ["i8"]
    fed = {"x": SAMPLES[1].inputs["x"][None]}
    expected, found = (compile_graph(g, CompileOptions())(fed) for g in (int8, again))
    for name in RESULTS:
        np.testing.assert_array_equal(found[name], expected[name], name)


def test_sums_that_only_arg_max_reads_are_ranked_in_float(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"]),
        helper.make_node("Gemm", ["f", "w"], ["g"]),
        helper.make_node("ArgMax", ["g"], ["y"], axis=1),
    ]
    graph = imported(nodes, {"y": TensorProto.INT64}, {"w": floats(432, 10)}, tmp_path)
    int8, _ = quantized(graph)
    assert inputs_of(int8, "Gemm") == ["i8"] and inputs_of(int8, "ArgMax") == ["float"]
