"""Places of maxima, caches written at computed places, bits of integers, and the oldest operator sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.core.errors import UnsupportedError
from qglow.importer import import_model
from tests.unit.importer.tiny import save, tiny_model

POOLS = {
    "line": ((2, 3, 11), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    "image": ((2, 3, 7, 6), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 2, 1]}),
    "columns": ((2, 2, 6, 5), {"kernel_shape": [2, 2], "strides": [2, 2], "storage_order": 1}),
    "dilated": ((1, 2, 8, 8), {"kernel_shape": [2, 2], "dilations": [3, 2], "ceil_mode": 1}),
    "volume": ((1, 2, 5, 4, 6), {"kernel_shape": [2, 2, 3], "pads": [0, 1, 1, 1, 0, 1]}),
}


def typed_model(
    node: onnx.NodeProto, kinds: dict[str, tuple[int, tuple[int, ...]]], opset: int
) -> onnx.ModelProto:
    """One node over inputs of these types; only its results' types are left open."""
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in kinds.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph([node], "tiny", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("case", POOLS)
def test_places_of_maxima(case: str, tmp_path: Path) -> None:
    import onnxruntime

    shape, attributes = POOLS[case]
    node = helper.make_node("MaxPool", ["x"], ["y", "places"], **attributes)
    path = save(typed_model(node, {"x": (TensorProto.FLOAT, shape)}, 13), tmp_path)
    # Few values, so that windows have several maxima.
    x = np.random.default_rng(3).integers(-3, 3, shape).astype(np.float32)
    wanted = onnxruntime.InferenceSession(str(path)).run(["y", "places"], {"x": x})
    model = qglow.load_model(path, native=True)
    for found in (model.interpret({"x": x}), model.compile()({"x": x})):
        np.testing.assert_array_equal(found["y"], wanted[0])
        np.testing.assert_array_equal(found["places"], wanted[1])


def test_a_window_of_infinities_has_a_place_within(tmp_path: Path) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2], pads=[1, 0])
    path = save(typed_model(node, {"x": (TensorProto.FLOAT, (1, 1, 3))}, 13), tmp_path)
    found = qglow.load_model(path, native=True).interpret({"x": np.full((1, 1, 3), -np.inf, np.float32)})
    assert found["places"].tolist() == [[[0, 0, 1]]]


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize(("axis", "first"), [(1, [0, 2]), (2, [2, 1]), (-1, None)])
def test_caches_written_from_an_index_on(
    axis: int, first: list[int] | None, mode: str, tmp_path: Path
) -> None:
    shape, kinds = (2, 4, 4, 4), {"x": (TensorProto.FLOAT, (2, 4, 4, 4))}
    update = tuple(2 if i == axis % 4 else 2 if i == 0 else 4 for i in range(4))
    kinds["update"] = (TensorProto.FLOAT, update)
    feeds = {
        name: np.random.default_rng(i).normal(size=s).astype(np.float32)
        for i, (name, s) in enumerate({"x": shape, "update": update}.items())
    }
    if first is not None:
        if mode == "circular":
            first = [index + 3 for index in first]
        kinds["first"] = (TensorProto.INT64, (2,))
        feeds["first"] = np.array(first, np.int64)
    node = helper.make_node("TensorScatter", list(kinds), ["y"], axis=axis, mode=mode)
    path = save(typed_model(node, kinds, 24), tmp_path)
    wanted = feeds["x"].copy()
    for entry in range(2):
        for step in range(2):
            place = ((first or [0, 0])[entry] + step) % 4
            np.moveaxis(wanted[entry], axis % 4 - 1, 0)[place] = np.moveaxis(
                feeds["update"][entry], axis % 4 - 1, 0
            )[step]
    model = qglow.load_model(path, native=True)
    for found in (model.interpret(feeds), model.compile()(feeds)):
        np.testing.assert_array_equal(found["y"], wanted)


def test_an_update_of_another_shape_is_refused(tmp_path: Path) -> None:
    kinds = {"x": (TensorProto.FLOAT, (2, 4, 3)), "update": (TensorProto.FLOAT, (2, 2, 5))}
    node = helper.make_node("TensorScatter", list(kinds), ["y"], axis=1)
    model = typed_model(node, kinds, 24)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 4, 3)))
    with pytest.raises(UnsupportedError, match=r"an update \[2, 2, 5\] of \[2, 4, 3\] along axis 1"):
        import_model(save(model, tmp_path), native=True)


def test_bits_of_integers(tmp_path: Path) -> None:
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.INT32)
    path = save(typed_model(node, {"x": (TensorProto.UINT32, (3,))}, 26), tmp_path)
    x = np.array([1, 1 << 31, (1 << 32) - 1], np.uint32)
    model = qglow.load_model(path, native=True)
    for found in (model.interpret({"x": x}), model.compile()({"x": x})):
        np.testing.assert_array_equal(found["y"], x.view(np.int32))
        assert found["y"].dtype == np.int32


def test_bits_of_constants(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("BitCast", ["c"], ["bits"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "bits"], ["y"]),
    ]
    data = np.array([1.5, -2.0], np.float32)
    path = save(tiny_model(nodes, {"x": (2,)}, ["y"], {"c": data.view(np.int32)}, opset=26), tmp_path)
    found = qglow.load_model(path, native=True).interpret({"x": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(found["y"], data)


def test_an_old_operator_set_of_unchanged_operators(tmp_path: Path) -> None:
    node = helper.make_node("Not", ["x"], ["y"])
    path = save(typed_model(node, {"x": (TensorProto.BOOL, (2,))}, 1), tmp_path)
    found = qglow.load_model(path, native=True).interpret({"x": np.array([True, False])})
    assert found["y"].tolist() == [False, True]


def test_a_model_without_standard_operators(tmp_path: Path) -> None:
    node = helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=0.5)
    ends = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (3,)) for name in "xy")
    graph = helper.make_graph([node], "tiny", [next(ends)], [next(ends)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8)
    found = qglow.load_model(save(model, tmp_path)).interpret({"x": np.array([0.25, 0.5, 0.75], np.float32)})
    assert found["y"].tolist() == [0.0, 0.0, 1.0]
