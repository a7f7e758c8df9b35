"""Nodes behind a graph whose results have a shape that data decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from qglow.core.errors import DataError
from qglow.core.types import float_type
from qglow.graph.graph import Value
from qglow.host.tail import HostedTail
from qglow.importer.inference import infer
from qglow.importer.loading import load
from qglow.importer.opaque import OpaqueNodes, OpaqueTail
from tests.unit.importer.tiny import save, tiny_model

BOXES = np.array([[[0, 0, 1, 1], [0, 0, 1, 1.1], [2, 2, 3, 3]]], np.float32)
SCORES = np.array([[[0.9, 0.8, 0.7]]], np.float32)


def tail_of(
    nodes: list[NodeProto], constants: dict[str, np.ndarray], outputs: list[str], folder: Path
) -> OpaqueTail:
    """The tail of a model of these nodes, which read boxes and scores."""
    shapes = {"boxes": (1, 3, 4), "scores": (1, 1, 3)}
    model = load(save(tiny_model(nodes, shapes, outputs, constants), folder))
    types = {name: float_type(*shape) for name, shape in shapes.items()}
    values = {name: Value(name, kind) for name, kind in types.items()}
    values |= {name: Value(name, float_type(*np.shape(a)), np.asarray(a)) for name, a in constants.items()}
    stored = {tensor.name: tensor for tensor in model.proto.graph.initializer}
    opaque = OpaqueNodes(
        model,
        nodes,
        values.get,
        lambda value: value,
        stored.get,
        lambda: infer(model.proto, types),
        lambda name: True,
    )
    for index in range(len(nodes)):
        assert opaque.group(index) is None
    return opaque.tail(outputs)


def hosted(tail: OpaqueTail) -> HostedTail:
    return tail.hosted(["node"], tail.results)


def detector() -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """NonMaxSuppression, and the boxes that it chooses."""
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["chosen"]),
        helper.make_node("Gather", ["chosen", "column"], ["places"], axis=1),
        helper.make_node("Gather", ["boxes", "places"], ["found"], axis=1),
    ]
    constants = {"most": 9, "iou": np.float32(0.5), "least": np.float32(0.75), "column": 2}
    return nodes, {name: np.asarray(a) for name, a in constants.items()}


@pytest.mark.parametrize(("scale", "count"), [(1.0, 1), (0.5, 0), (1.08, 2)])
def test_a_tail_gives_as_many_results_as_data_decide(scale: float, count: int, tmp_path: Path) -> None:
    nodes, constants = detector()
    tail = tail_of(nodes, constants, ["found", "chosen"], tmp_path)
    assert [value.name for value in tail.operands] == ["boxes", "scores"]
    assert tail.kinds == "NonMaxSuppression, Gather"
    found, chosen = hosted(tail).run([BOXES, SCORES * np.float32(scale)])
    assert found.shape == (1, count, 4) and chosen.shape == (count, 3)


def test_a_tail_says_which_nodes_refuse_inputs(tmp_path: Path) -> None:
    nodes, constants = detector()
    tail = tail_of(nodes, constants, ["found"], tmp_path)
    with pytest.raises(DataError, match="NonMaxSuppression, Gather: onnxruntime cannot run it"):
        hosted(tail).run([BOXES[:, :, :2], SCORES])


def test_one_tail_computes_what_several_outputs_share_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["scores"], ["places"]),
        helper.make_node("Neg", ["places"], ["a"]),
        helper.make_node("Cast", ["places"], ["b"], to=TensorProto.FLOAT),
    ]
    tail = tail_of(nodes, {}, ["a", "b"], tmp_path)
    assert tail.kinds == "NonZero, Neg, Cast" and tail.results == ("a", "b")
    a, b = hosted(tail).run([SCORES - np.float32(0.8)])
    np.testing.assert_array_equal(-a, b)
    assert a.shape == (3, 2)
