"""Names, shapes and order of imported models."""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from qglow.core.errors import UsageError
from qglow.core.model_place import read_place
from qglow.core.types import Array
from qglow.importer import import_model, read_tensor
from qglow.importer.binding import bind_inputs
from qglow.importer.model import ImportedModel
from tests.unit.importer.tiny import assert_as_onnxruntime, save, tiny_model


def relu(*inputs: str, output: str = "y", name: str = "") -> onnx.NodeProto:
    return helper.make_node("Relu", list(inputs), [output], name=name)


def imported(folder: Path, shape: list[int | str | None] | None, **arguments: object) -> ImportedModel:
    path = save(tiny_model([relu("x")], {"x": shape}, ["y"]), folder)
    return import_model(path, **arguments)  # type: ignore[arg-type]


def shape_of(model: ImportedModel) -> tuple[int, ...]:
    return model.graph.inputs[0].type.shape


def test_model_tells_where_it_came_from(tmp_path: Path) -> None:
    model = imported(tmp_path, [2, 3])
    assert model.opset == 13
    assert model.digest == hashlib.sha256(read_place(model.place)).hexdigest()
    assert [name for name, _ in model.inputs] == ["x"]
    assert [(name, kind.shape) for name, kind in model.outputs] == [("y", (2, 3))]
    assert model.graph.name == "tiny"


def test_first_symbolic_dimension_is_bound_to_the_batch_and_said(tmp_path: Path) -> None:
    model = imported(tmp_path, ["N", 3], default_batch=4)
    assert shape_of(model) == (4, 3)
    assert model.bound_dimensions == ("input 'x' of shape [N, 3]: first dimension bound to 4",)


@pytest.mark.parametrize("first", [None, -1])
def test_unnamed_first_dimension_is_bound_too(tmp_path: Path, first: int | None) -> None:
    assert shape_of(imported(tmp_path, [first, 3])) == (1, 3)


def test_given_shape_binds_everything_and_nothing_is_said(tmp_path: Path) -> None:
    model = imported(tmp_path, ["N", 3, "H", "W"], shapes={"x": [2, 3, 8, 9]})
    assert shape_of(model) == (2, 3, 8, 9)
    assert model.bound_dimensions == ()


@pytest.mark.parametrize("symbol", ["?", "-1", "None"])
def test_symbols_that_exporters_write_for_anything_bind_nothing(symbol: str, tmp_path: Path) -> None:
    assert shape_of(imported(tmp_path, [1, symbol, symbol], shapes={"x": [1, 3, 4]})) == (1, 3, 4)


def test_symbol_that_is_written_as_a_number_is_the_number(tmp_path: Path) -> None:
    assert shape_of(imported(tmp_path, [1, "3", "16"])) == (1, 3, 16)
    assert shape_of(imported(tmp_path, [1, "0", 4], shapes={"x": [1, 3, 4]})) == (1, 3, 4)


def test_given_shape_is_enough_where_none_is_declared(tmp_path: Path) -> None:
    path = save(tiny_model([relu("x")], {"x": [1]}, ["y"]), tmp_path)
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    path = save(model, tmp_path)
    assert shape_of(import_model(path, {"x": [2, 5]})) == (2, 5)
    with pytest.raises(UsageError, match="'x' declares no shape"):
        import_model(path)


def test_symbol_of_one_input_binds_the_others(tmp_path: Path) -> None:
    add = helper.make_node("Add", ["a", "b"], ["y"])
    path = save(tiny_model([add], {"a": ["N", "D"], "b": ["N", "D"]}, ["y"]), tmp_path)
    model = import_model(path, {"b": [3, 4]})
    assert [v.type.shape for v in model.graph.inputs] == [(3, 4), (3, 4)]
    with pytest.raises(UsageError, match="binds N to 2, that of '[a-z]+' to 3"):
        import_model(path, {"a": [3, 4], "b": [2, 4]})


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, r"bind its dimensions, as in `shapes=x=1,3,224,224`"),
        ({"z": [1, 3, 8, 8]}, r"inputs are 'x'; did you mean 'x'"),
        ({"x": [1, 4, 8, 8]}, r"x=1,4,8,8 contradicts the model, which has \[N, 3, H, W\]"),
        ({"x": [1, 3, 8]}, r"has 3 dimensions; the model has \[N, 3, H, W\]"),
        ({"x": [1, 3, -8, 8]}, r"negative"),
    ],
)
def test_shapes_that_do_not_fit(tmp_path: Path, shapes: dict[str, list[int]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        imported(tmp_path, ["N", 3, "H", "W"], shapes=shapes)


@pytest.mark.parametrize(
    ("shape", "kind", "example"),
    [
        (["s10", "s21"], TensorProto.FLOAT, "1,16000"),
        ([1, 1, "samples"], TensorProto.FLOAT16, "1,1,16000"),
        # Rows of features are no samples of sound, and neither are tokens.
        (["N", "frames", "features"], TensorProto.FLOAT, "1,128,128"),
        (["s10", "s21"], TensorProto.INT64, "1,128"),
    ],
)
def test_the_example_of_a_shape_is_long_enough_for_sound(
    shape: list[int | str], kind: int, example: str
) -> None:
    value = helper.make_tensor_value_info("x", kind, shape)
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axes"], ["u"]),
        helper.make_node("Sub", ["u", "mean"], ["s"]),
        helper.make_node("Conv", ["s", "w"], ["y"], kernel_shape=[3]),
    ]
    with pytest.raises(UsageError, match=f"as in `shapes=x={example}`$"):
        bind_inputs([value], {}, 1, nodes)
    with pytest.raises(UsageError, match="128`$"):
        bind_inputs([value], {}, 1, [helper.make_node("Gemm", ["x", "v"], ["s"]), nodes[2]])


def test_names_of_the_file_are_kept_and_missing_ones_made(tmp_path: Path) -> None:
    nodes = [relu("x", output="a"), relu("a", output="b", name="Relu_0"), relu("b", name="mine")]
    graph = import_model(save(tiny_model(nodes, {"x": [2]}, ["y"]), tmp_path)).graph
    assert [n.output.name for n in graph.nodes] == ["a", "b", "y"]
    assert [n.name for n in graph.nodes] == ["Relu_0__1", "Relu_0", "mine"]


def test_two_nodes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    nodes = [relu("x", output="a", name="same"), relu("a", name="same")]
    graph = import_model(save(tiny_model(nodes, {"x": [2]}, ["y"]), tmp_path)).graph
    assert [n.name for n in graph.nodes] == ["same", "same__1"]


def test_nodes_out_of_order_are_sorted(tmp_path: Path) -> None:
    nodes = [
        relu("b", name="last"),
        relu("a", output="b", name="middle"),
        relu("x", output="a", name="first"),
    ]
    graph = import_model(save(tiny_model(nodes, {"x": [2]}, ["y"]), tmp_path)).graph
    assert [n.name for n in graph.nodes] == ["first", "middle", "last"]


def test_a_node_comes_after_what_its_branches_read(tmp_path: Path) -> None:
    branches = {
        f"{which}_branch": helper.make_graph(
            [helper.make_node(operator, ["a"], ["o"])], which, [], [helper.make_empty_tensor_value_info("o")]
        )
        for which, operator in (("then", "Identity"), ("else", "Neg"))
    }
    nodes = [
        helper.make_node("If", ["c"], ["y"], name="last", **branches),
        relu("x", output="a", name="first"),
    ]
    model = tiny_model(nodes, {"x": [2]}, ["y"])
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    path = save(model, tmp_path)
    graph = import_model(path).graph
    assert graph.nodes[0].name == "first"
    assert_as_onnxruntime(graph, path)


def test_initializer_that_is_also_an_input_is_a_constant(tmp_path: Path) -> None:
    add = helper.make_node("Add", ["x", "c"], ["y"])
    model = tiny_model([add], {"x": [2], "c": [2]}, ["y"], {"c": np.ones(2, np.float32)}, opset=8)
    path = save(model, tmp_path)
    graph = import_model(path).graph
    assert [v.name for v in graph.inputs] == ["x"]
    assert_as_onnxruntime(graph, path)


def test_external_data_beside_the_model_is_read(tmp_path: Path) -> None:
    add = helper.make_node("Add", ["x", "c"], ["y"])
    model = tiny_model([add], {"x": [2, 300]}, ["y"], {"c": np.arange(300, dtype=np.float32)})
    path = tmp_path / "external.onnx"
    onnx.save_model(model, str(path), save_as_external_data=True, location="data.bin", size_threshold=0)
    assert_as_onnxruntime(import_model(path).graph, path)


@pytest.mark.parametrize("offset", [0, 4, 4096, 4098])
def test_large_external_data_is_mapped(offset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qglow.importer.external.MAPPED", 4096)
    data = np.arange(1500, dtype=np.float32)
    model = tiny_model([helper.make_node("Add", ["x", "c"], ["y"])], {"x": [1500]}, ["y"], {"c": data})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "data.bin"), ("offset", str(offset))):
        tensor.external_data.add(key=key, value=value)
    (tmp_path / "data.bin").write_bytes(bytes(offset) + data.tobytes())
    graph = import_model(save(model, tmp_path)).graph
    read = graph.nodes[0].inputs[1].data
    assert np.array_equal(read, data) and read.flags.aligned
    assert isinstance(_memory_of(read), mmap.mmap) == (offset % 4 == 0)


def _memory_of(array: Any) -> object:
    """What an array's elements are in."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def test_graph_of_constants_only(tmp_path: Path) -> None:
    nodes = [relu("c", output="d"), helper.make_node("Add", ["x", "d"], ["y"])]
    model = tiny_model(nodes, {"x": [2]}, ["y"], {"c": np.array([-1.0, 2.0], np.float32)})
    graph = import_model(save(model, tmp_path)).graph
    assert [n.operator.name for n in graph.nodes] == ["Add"]
    constant = graph.value("d").data
    assert constant is not None and constant.tolist() == [0.0, 2.0]


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8, np.bool_])
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 4)])
def test_tensor_file_is_read(tmp_path: Path, dtype: type, shape: tuple[int, ...]) -> None:
    data: Array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    path = tmp_path / "input_0.pb"
    path.write_bytes(onnx.numpy_helper.from_array(data).SerializeToString())
    read = read_tensor(path)
    assert read.dtype == data.dtype and read.shape == data.shape
    assert np.array_equal(read, data)


def test_numbers_stored_as_fields_are_read(tmp_path: Path) -> None:
    path = tmp_path / "input_0.pb"
    path.write_bytes(helper.make_tensor("t", TensorProto.FLOAT, [2], [1.5, -2.0]).SerializeToString())
    assert read_tensor(path).tolist() == [1.5, -2.0]
