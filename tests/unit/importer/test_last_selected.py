"""The last selected row of each sample, as exporters write it for classifiers on encoder-decoders."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import qglow
from qglow.core.errors import QglowError
from qglow.core.types import Array
from tests.unit.importer.tiny import session, tiny_model

node = helper.make_node
NUMBERS = {
    "end": np.array(2),
    "last": np.array(-1),
    "rest": np.array([-1]),
    "first": np.array(0),
    "axis": np.array([0]),
    "width": np.array([6]),
    "half": np.array([3]),
}
SELECTED = [
    node("Equal", ["ids", "end"], ["equal"]),
    node("Cast", ["equal"], ["mask"], to=TensorProto.BOOL),
    node("NonZero", ["mask"], ["places"]),
    node("Transpose", ["places"], ["turned"], perm=[1, 0]),
    node("GatherND", ["x", "turned"], ["rows"]),
]
BATCHES = {
    "TorchScript": [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "first"], ["number"], axis=0),
        node("Unsqueeze", ["number", "axis"], ["batch"]),
    ],
    "dynamo": [node("Shape", ["ids"], ["batch"], start=0, end=1)],
}
ENDS = ([[5, 6, 2], [2, 7, 0], [4, 2, 4]], [[2, 5, 2, 0], [6, 2, 2, 5]], [[1, 3, 2]])


def model(batch: list[NodeProto], width: str = "width", place: str = "last") -> ModelProto:
    nodes = [
        *SELECTED,
        *batch,
        node("Concat", ["batch", "rest", width], ["sizes"], axis=0),
        node("Reshape", ["rows", "sizes"], ["view"]),
        node("Gather", ["view", place], ["taken"], axis=1),
        node("Relu", ["taken"], ["y"]),
    ]
    made = tiny_model(nodes, {"x": ("N", "T", 6), "ids": ("N", "T")}, ["y"], NUMBERS, opset=17)
    made.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    return made


def feeds(ids: list[list[int]]) -> dict[str, Array]:
    x = np.random.default_rng(0).normal(size=(len(ids), len(ids[0]), 6)).astype(np.float32)
    return {"x": x, "ids": np.array(ids)}


@pytest.mark.parametrize("form", BATCHES)
def test_rows_are_gathered_for_each_sample(form: str) -> None:
    """As many rows of each sample are selected; no input decides shapes then, and sizes may be bounded."""
    made = model(BATCHES[form])
    source = qglow.load_model(made.SerializeToString())
    free, bounded = source.compile(), source.compile(bounds={"N": 8, "T": 8})
    for ids in ENDS:
        given = feeds(ids)
        (wanted,) = session(made).run(None, given)
        np.testing.assert_array_equal(free(given)["y"], wanted)
        np.testing.assert_array_equal(bounded(given)["y"], wanted)
    graph = source.at({"x": (2, 4, 6), "ids": (2, 4)}).graph
    assert not {node.operator.name for node in graph.nodes} & {"Opaque"}


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Shape", ["x"], ["batch"], start=1, end=2)],
        [node("Shape", ["other"], ["batch"], start=0, end=1)],
        [node("Identity", ["width"], ["batch"])],
    ],
)
def test_other_extents_than_the_batch_are_left(nodes: list[NodeProto]) -> None:
    made = model(nodes)
    made.graph.input.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, ["M"]))
    with pytest.raises(QglowError, match="input 'ids' decide"):
        qglow.load_model(made.SerializeToString()).at({"x": (2, 4, 6), "ids": (2, 4), "other": (2,)})


def test_first_rows_are_left() -> None:
    made = model(BATCHES["dynamo"], place="first")
    with pytest.raises(QglowError, match="input 'ids' decide"):
        qglow.load_model(made.SerializeToString()).at({"x": (2, 4, 6), "ids": (2, 4)})


def test_parts_of_rows_are_taken_as_the_view_has_them() -> None:
    made, given = model(BATCHES["dynamo"], width="half"), feeds(ENDS[1])
    (wanted,) = session(made).run(None, given)
    assert wanted.shape == (2, 3)
    np.testing.assert_array_equal(qglow.load_model(made.SerializeToString()).compile()(given)["y"], wanted)


def test_rows_that_more_nodes_read_stay() -> None:
    """What NonZero gives is an output besides: it is computed still."""
    made = model(BATCHES["dynamo"])
    made.graph.output.append(helper.make_tensor_value_info("rows", TensorProto.FLOAT, None))
    given = feeds(ENDS[1])
    wanted = dict(zip(("y", "rows"), session(made).run(None, given), strict=True))
    found = qglow.load_model(made.SerializeToString()).compile()(given)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
