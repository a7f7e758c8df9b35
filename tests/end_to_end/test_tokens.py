"""Models that take indices: from import to int8 on every ISA, and data that does not fit them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.core.errors import DataError, UsageError
from qglow.exporter import export_qdq
from qglow.graph.interpreter import Interpreter
from qglow.importer import import_model
from qglow.passes.pipeline import canonicalize
from qglow.profiling.profile import ModelReference
from qglow.profiling.profiler import profile
from qglow.profiling.samples import Sample
from qglow.quantization.pipeline import quantize_with
from qglow.recipe.schema import Recipe
from qglow.report.oracle import OnnxruntimeModel
from qglow.toolchain import CompiledEngine, CompileOptions, compile_graph
from tests.end_to_end.zoo_flow import RUNNABLE
from tests.unit.importer.cases import floats
from tests.unit.importer.tiny import assert_as_onnxruntime, assert_close, save, session, tiny_model

WORDS, LENGTH = 50, 7
NODES = [
    helper.make_node("Gather", ["table", "x"], ["e"]),
    helper.make_node("MatMul", ["e", "w"], ["h"]),
    helper.make_node("Relu", ["h"], ["r"]),
    helper.make_node("ReduceMean", ["r"], ["m"], axes=[1], keepdims=0),
    helper.make_node("Gemm", ["m", "w2"], ["y"]),
]
CONSTANTS = {"table": floats(WORDS, 16), "w": floats(16, 32), "w2": floats(32, 5)}
KINDS = {"int32": TensorProto.INT32, "int64": TensorProto.INT64}


def token_model(kind: int, folder: Path) -> Path:
    return save(tiny_model(NODES, {"x": ["N", LENGTH]}, ["y"], CONSTANTS, input_type=kind), folder)


def tokens(kind: str, samples: int, low: int = -WORDS) -> np.ndarray:
    return np.random.default_rng(1).integers(low, WORDS, (samples, LENGTH)).astype(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_float_program_is_that_of_onnxruntime(kind: str, tmp_path: Path) -> None:
    path = token_model(KINDS[kind], tmp_path)
    assert_as_onnxruntime(import_model(path).graph, path, {"x": tokens(kind, 1)})


@pytest.mark.parametrize("kind", KINDS)
def test_int8_bits_are_those_of_every_isa_and_of_onnxruntime(kind: str, tmp_path: Path) -> None:
    path = token_model(KINDS[kind], tmp_path)
    graph = canonicalize(import_model(path).graph)
    samples = [Sample(str(i), {"x": row}) for i, row in enumerate(tokens(kind, 16))]
    reference = ModelReference(path, "0" * 64)
    found = profile(graph, samples, CompiledEngine(lambda batch: graph), model=reference, batch_size=1)
    options = Recipe(assert_all_quantized=True)
    int8 = quantize_with(graph, found.check_matches(graph), found.samples, options).graph
    gather = next(node for node in int8.nodes if node.operator.name == "Gather")
    assert gather.output.type.is_quantized
    fed = {"x": tokens(kind, 1)}
    first, *others = (compile_graph(int8, CompileOptions(isa=isa))(fed)["y"] for isa in RUNNABLE)
    for other in [*others, Interpreter(int8).run(fed)["y"]]:
        np.testing.assert_array_equal(other, first)
    # The last sums give float; without its optimiser onnxruntime adds them up in float, too.
    (exported,) = session(export_qdq(int8)).run(["y"], fed)
    assert_close(exported, first, "y in onnxruntime", tolerance=1e-6)


def test_data_flows_from_files_to_a_saved_program(tmp_path: Path) -> None:
    path = token_model(TensorProto.INT64, tmp_path)
    model = qglow.load_model(path)
    int8 = model.quantize(model.profile({"x": tokens("int64", 32)}), repair=False)
    results = int8.compile()({"x": tokens("int64", 1)})
    assert results["y"].shape == (1, 5)
    with pytest.raises(DataError, match="is float64, the model takes int64"):
        model.profile({"x": tokens("int64", 4) + np.float32(0.5)})


def test_indices_beyond_the_table_are_refused_where_they_are_seen(tmp_path: Path) -> None:
    path = token_model(TensorProto.INT64, tmp_path)
    beyond = {"x": np.full((1, LENGTH), WORDS, np.int64)}
    with pytest.raises(UsageError, match="node 'Gather_0' .*index 50 is out of bounds"):
        Interpreter(import_model(path).graph).run(beyond)
    with pytest.raises(DataError, match="cannot run .* on these inputs"):
        OnnxruntimeModel(path, shapes={"x": (1, LENGTH)})(beyond)


@pytest.mark.parametrize("kind", [TensorProto.BOOL, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_other_inputs_keep_their_types(kind: int, tmp_path: Path) -> None:
    cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    path = save(tiny_model([cast], {"x": [3]}, ["y"], input_type=kind), tmp_path)
    fed = {"x": np.array([0, 1, 1], helper.tensor_dtype_to_np_dtype(kind))}
    np.testing.assert_array_equal(qglow.load_model(path).compile()(fed)["y"], [0, 1, 1])
