"""Places and first elements as onnxruntime has them; what reads indices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array, ElementType
from qglow.exporter import export_float
from qglow.graph.graph import Graph
from qglow.importer import import_model
from qglow.toolchain import CompileOptions, compile_graph
from tests.unit.importer.cases import Case, floats, ints
from tests.unit.importer.ranking_cases import CASES
from tests.unit.importer.tiny import save, session, tiny_model

TIED = np.round(floats(2, 6, 9, 8)).astype(np.float32)


def checked(graph: Graph, path: Path, feeds: dict[str, Array]) -> None:
    """Compiled code and the exported model give what onnxruntime gives for the file."""
    names = [value.name for value in graph.outputs]
    expected = session(path.read_bytes()).run(names, feeds)
    compiled = compile_graph(graph, CompileOptions())(feeds)
    again = session(export_float(graph)).run(names, feeds)
    for name, wanted, other in zip(names, expected, again, strict=True):
        np.testing.assert_array_equal(compiled[name], wanted)
        assert compiled[name].dtype == wanted.dtype
        np.testing.assert_array_equal(other, wanted)


def model(
    nodes: list[NodeProto], outputs: dict[str, int], constants: dict[str, Array], opset: int, folder: Path
) -> Path:
    made = tiny_model(nodes, {"x": TIED.shape}, list(outputs), constants, opset)
    for value in made.graph.output:
        value.type.tensor_type.elem_type = outputs[value.name]
    return save(made, folder)


@pytest.mark.parametrize(
    ("case", "opset"), [pytest.param(c, o, id=f"{c.name}-{o}") for c in CASES for o in c.opsets]
)
def test_results_are_those_of_onnxruntime(case: Case, opset: int, tmp_path: Path) -> None:
    node, outputs = case.node, {"y": TensorProto.INT64}
    if node.op_type == "TopK":
        node = NodeProto()
        node.CopyFrom(case.node)
        node.output.append("i")
        outputs = {"y": TensorProto.FLOAT, "i": TensorProto.INT64}
    path = model([node], outputs, dict(case.constants), opset, tmp_path)
    checked(import_model(path).graph, path, {"x": TIED})


def test_indices_go_into_cast_and_gather(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1),
        helper.make_node("Cast", ["i"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Gather", ["table", "i"], ["y"]),
    ]
    outputs = {"number": TensorProto.FLOAT, "y": TensorProto.FLOAT}
    path = model(nodes, outputs, {"k": ints(2), "table": floats(6, 3)}, 13, tmp_path)
    graph = import_model(path).graph
    assert [node.operator.name for node in graph.nodes] == ["TopKIndices", "Cast", "Gather"]
    feeds = {"x": TIED}
    expected = session(path.read_bytes()).run(None, feeds)
    compiled = compile_graph(graph, CompileOptions())(feeds)
    for name, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(compiled[name], wanted)


def test_places_among_integers_are_those_of_onnxruntime(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["whole"], to=TensorProto.INT64),
        helper.make_node("ArgMax", ["whole"], ["y"]),
    ]
    path = model(nodes, {"y": TensorProto.INT64}, {}, 13, tmp_path)
    graph = import_model(path).graph
    assert graph.outputs[0].type.element is ElementType.INT64
    checked(graph, path, {"x": TIED})


def test_more_elements_than_there_are_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=1)]
    path = model(nodes, {"y": TensorProto.FLOAT}, {"k": ints(7)}, 13, tmp_path)
    with pytest.raises(UnsupportedError, match="k is 7, and axis 1 has 6 elements"):
        import_model(path)
