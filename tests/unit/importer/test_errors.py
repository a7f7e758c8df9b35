"""Damaged, hostile and unsupported models: one clear error each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper

from qglow.core.errors import DataError, ModelError, QglowError, UnsupportedError
from qglow.importer import import_model, read_tensor
from tests.fuzzing import examples
from tests.unit.importer.tiny import save, tiny_model


def add_model() -> ModelProto:
    """y = relu(x + c)"""
    nodes = [
        helper.make_node("Add", ["x", "c"], ["a"], name="add"),
        helper.make_node("Relu", ["a"], ["y"], name="relu"),
    ]
    return tiny_model(nodes, {"x": [2, 3]}, ["y"], {"c": np.ones((2, 3), np.float32)})


def message_of(path: Path, kind: type[QglowError] = ModelError) -> str:
    with pytest.raises(kind) as caught:
        import_model(path, native=True)
    return str(caught.value)


def assert_one_line(message: str, path: Path) -> None:
    assert "\n" not in message
    assert path.name in message


def set_duplicate_output(model: ModelProto) -> None:
    model.graph.node[0].output[0] = "y"


def set_duplicate_initializer(model: ModelProto) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def set_duplicate_input(model: ModelProto) -> None:
    model.graph.input.append(model.graph.input[0])


def set_cycle(model: ModelProto) -> None:
    model.graph.node[0].input[1] = "y"


def set_unknown_name(model: ModelProto) -> None:
    model.graph.node[0].input[1] = "nowhere"


def set_unknown_output(model: ModelProto) -> None:
    model.graph.output[0].name = "nowhere"


def set_node_writes_input(model: ModelProto) -> None:
    model.graph.node[0].output[0] = "x"


def set_short_data(model: ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.raw_data = tensor.raw_data[:-4]


def set_short_large_data(model: ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.dims[:] = [70_000]
    tensor.raw_data = bytes(4 * 70_000 - 4)


def set_huge_dimensions(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [2**40, 2**40]


def set_negative_dimensions(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [-2, -3]


def set_short_fields(model: ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.float_data.extend([1.0, 2.0])


def set_no_outputs(model: ModelProto) -> None:
    del model.graph.output[:]


def set_no_opset(model: ModelProto) -> None:
    del model.opset_import[:]


def set_extra_input(model: ModelProto) -> None:
    model.graph.node[1].input.append("c")


def set_shapes_that_do_not_broadcast(model: ModelProto) -> None:
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones((4, 5), np.float32), "c"))


def set_unknown_attribute(model: ModelProto) -> None:
    model.graph.node[1].attribute.append(helper.make_attribute("slope", 0.5))


def set_sequence_input(model: ModelProto) -> None:
    model.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (set_duplicate_output, "named 'y'"),
        (set_duplicate_initializer, "named 'c'"),
        (set_duplicate_input, "named 'x'"),
        (set_cycle, "cycle through 'add'"),
        (set_unknown_name, "'nowhere'"),
        (set_unknown_output, "'nowhere'"),
        (set_node_writes_input, "'x'"),
        (set_short_data, "name: c"),
        (set_short_large_data, "279996 bytes of data for shape [70000]"),
        (set_huge_dimensions, "name: c"),
        (set_negative_dimensions, "name: c"),
        (set_short_fields, "name: c"),
        (set_no_outputs, "no outputs"),
        (set_no_opset, "operator set"),
        (set_extra_input, "relu"),
        (set_shapes_that_do_not_broadcast, "'add'"),
        (set_unknown_attribute, "slope"),
        (set_sequence_input, "'x'"),
    ],
)
def test_invalid_model_is_one_line(damage: Callable[[ModelProto], None], says: str, tmp_path: Path) -> None:
    model = add_model()
    damage(model)
    path = save(model, tmp_path)
    message = message_of(path)
    assert_one_line(message, path)
    assert says in message


@pytest.mark.parametrize("content", [b"", b"not a model\n", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\0" * 64])
def test_file_that_is_no_model(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(content)
    assert_one_line(message_of(path), path)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    assert_one_line(message_of(tmp_path / "absent.onnx"), tmp_path / "absent.onnx")
    assert_one_line(message_of(tmp_path), tmp_path)


def test_file_cut_short_anywhere(tmp_path: Path) -> None:
    data = add_model().SerializeToString()
    path = tmp_path / "cut.onnx"
    for size in range(0, len(data) - 1, 7):
        path.write_bytes(data[:size])
        with pytest.raises(QglowError):
            import_model(path)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_give_a_graph_or_a_deliberate_error(
    changes: list[tuple[int, int]], tmp_path: Path
) -> None:
    data = bytearray(add_model().SerializeToString())
    for position, value in changes:
        data[position % len(data)] = value
    path = tmp_path / "changed.onnx"
    path.write_bytes(bytes(data))
    try:
        import_model(path)
    except QglowError as error:
        assert str(error)


@pytest.mark.parametrize("name", [b"graph", b"add", b"relu", b"Relu", b"x", b"c", b"y"])
def test_name_that_is_no_text(name: bytes, tmp_path: Path) -> None:
    model = add_model()
    model.graph.name = "graph"
    path = tmp_path / "latin.onnx"
    tag = bytes([len(name)])
    assert tag + name in model.SerializeToString()
    path.write_bytes(model.SerializeToString().replace(tag + name, tag + b"\xe4" + name[1:]))
    message = message_of(path)
    assert "no text" in message
    assert_one_line(message, path)


def external_model(location: str, **entries: str) -> ModelProto:
    model = add_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return model


@pytest.mark.parametrize("location", ["../outside.bin", "/etc/hostname", "link.bin", "a/../../outside.bin"])
def test_external_data_outside_the_folder_is_refused(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(24))
    os.symlink(tmp_path / "outside.bin", folder / "link.bin")
    message = message_of(save(external_model(location), folder))
    assert "outside the model's folder" in message


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"location": "absent.bin"}, "missing"),
        ({"location": ""}, "does not say"),
        ({"location": "w.bin"}, "8 bytes"),
        ({"location": "w.bin", "offset": "x"}, "not a number"),
        ({"location": "w.bin", "offset": "-4"}, "offset -4"),
        ({"location": "w.bin", "length": "8"}, "8 bytes"),
        ({"location": "w\0.bin"}, "external data"),
    ],
)
@pytest.mark.parametrize("largest_read", [4, 1 << 20])
def test_external_data_that_does_not_fit(
    entries: dict[str, str], says: str, largest_read: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qglow.importer.external.MAPPED", largest_read)
    (tmp_path / "w.bin").write_bytes(bytes(8))
    path = save(external_model(**entries), tmp_path)
    message = message_of(path)
    assert_one_line(message, path)
    assert says in message and "'c'" in message


def test_everything_unsupported_is_told_at_once_in_three_lines(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="volume"),
        helper.make_node("RandomNormalLike", ["a"], ["b"], name="noise"),
        helper.make_node("MaxPool", ["b"], ["c"], name="pool", kernel_shape=[2] * 4),
        helper.make_node("Magic", ["c"], ["d"], name="magic", domain="com.example"),
        helper.make_node("Softmax", ["d"], ["e"]),
        helper.make_node("Pad", ["x", "p"], ["y"], mode="mirror"),
    ]
    constants = {"w": np.ones((2, 3, 3, 3, 3, 3), np.float32), "p": np.array([0, 0, 1, *[0] * 9])}
    model = tiny_model(nodes, {"x": [1, 3, 8, 8, 8, 8]}, ["e", "y"], constants)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    path = save(model, tmp_path)
    message = message_of(path, UnsupportedError)
    lines = message.splitlines()
    assert "needs 5 things" in lines[0] and "qglow ops" in lines[0] and len(lines) == 3
    assert lines[1] == (
        "  node 'volume' (Conv, opset 13): input has 6 dimensions; "
        "three (NCL), four (NCHW) and five (NCDHW) are supported"
    )
    assert lines[2].startswith(
        "  and 4 other causes: (RandomNormalLike, opset 13), (MaxPool, opset 13), (com.example.Magic"
    )
    assert lines[2].endswith("(Pad, opset 13)")


def test_nodes_with_one_cause_are_counted(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], [f"y{number}"], name=f"noise{number}")
        for number in range(4)
    ]
    nodes.append(helper.make_node("Pad", ["x", "p"], ["z"], mode="mirror"))
    model = tiny_model(nodes, {"x": [3, 3]}, ["y0", "z"], {"p": np.array([0, 0, 1, 0])})
    lines = message_of(save(model, tmp_path), UnsupportedError).splitlines()
    assert "needs 5 things" in lines[0]
    assert (
        lines[1] == "  node 'noise0' and 3 more (RandomNormalLike, opset 13): the operator is not supported"
    )
    assert "'Pad_4'" in lines[2] and "mode mirror" in lines[2]


def unsupported_node(
    op_type: str, inputs: list[str], outputs: int = 1, **attributes: object
) -> onnx.NodeProto:
    names = ["y", "z", "u", "v", "t"][:outputs]
    return helper.make_node(op_type, inputs, names, name="it", **attributes)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (unsupported_node("Conv", ["x", "w"], auto_pad="SAME"), "auto_pad"),
        (
            unsupported_node("MaxPool", ["x"], 2, kernel_shape=[2, 1], dilations=[9, 1], pads=[1, 0, 1, 0]),
            "lies in the padding",
        ),
        (unsupported_node("AveragePool", ["x"], kernel_shape=[2, 2], strides=[2]), "strides"),
        (unsupported_node("Cast", ["x"], to=TensorProto.FLOAT8E4M3FN), "float8e4m3fn"),
        (unsupported_node("Slice", ["x", "one", "two", "one", "zero"]), "a step is 0"),
        (
            unsupported_node("Dropout", ["x", "half", "yes"]),
            "training",
        ),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else "",
)
def test_unsupported_forms_name_the_node(node: onnx.NodeProto, says: str, tmp_path: Path) -> None:
    constants = {
        "w": np.ones((2, 4, 3, 3), np.float32),
        "one": np.array([1]),
        "two": np.array([2]),
        "zero": np.array([0]),
        "half": np.array(0.5, np.float32),
        "yes": np.array(True),
    }
    inner = helper.make_node("Shape", ["x"], ["i0"])
    nodes = [inner, node] if "i" not in node.input else [node]
    inputs: dict[str, list[int]] = {"x": [1, 4, 8, 8], "r": []}
    if "i" in node.input:
        inputs["i"] = [2]
    model = tiny_model(nodes, inputs, list(node.output), constants, 21)
    message = message_of(save(model, tmp_path), UnsupportedError)
    assert says in message


@pytest.mark.parametrize("opset", [5, 99])
def test_operator_set_out_of_range(opset: int, tmp_path: Path) -> None:
    model = add_model()
    model.opset_import[0].version = opset
    assert f"opset {opset}" in message_of(save(model, tmp_path), UnsupportedError)


def test_input_of_another_type_is_named(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    path = save(tiny_model([node], {"x": [2]}, ["y"], input_type=TensorProto.FLOAT8E5M2), tmp_path)
    assert "'x' of float8e5m2" in message_of(path, UnsupportedError)


@pytest.mark.parametrize("bound", ["lo", "hi"])
def test_bounds_that_are_nan_are_unsupported(bound: str, tmp_path: Path) -> None:
    bounds = {"lo": np.float32(0), "hi": np.float32(1), bound: np.float32(np.nan)}
    node = helper.make_node("Clip", ["x", "lo", "hi"], ["y"])
    path = save(tiny_model([node], {"x": [2]}, ["y"], bounds), tmp_path)
    assert "a bound is NaN" in message_of(path, UnsupportedError)


@pytest.mark.parametrize("nodes", [[], [helper.make_node("Relu", ["x"], ["y"])]], ids=["alone", "beside"])
def test_an_output_that_is_an_input_is_unsupported(nodes: list[NodeProto], tmp_path: Path) -> None:
    outputs = [*(output for node in nodes for output in node.output), "x"]
    message = message_of(save(tiny_model(nodes, {"x": [2]}, outputs), tmp_path), UnsupportedError)
    assert "output 'x' is an input of the model" in message and "\n" not in message


MARK = "QQQQQQ"
FOR_PEOPLE: dict[str, Callable[[ModelProto], object]] = {
    "model": lambda model: setattr(model, "doc_string", MARK),
    "graph": lambda model: setattr(model.graph, "doc_string", MARK),
    "node": lambda model: setattr(model.graph.node[0], "doc_string", MARK),
    "producer": lambda model: setattr(model, "producer_name", MARK),
    "domain": lambda model: setattr(model, "domain", MARK),
    "properties": lambda model: helper.set_model_props(model, {MARK: MARK}),
}


@pytest.mark.parametrize("where", FOR_PEOPLE)
def test_text_for_people_may_be_no_text(where: str, tmp_path: Path) -> None:
    model = add_model()
    FOR_PEOPLE[where](model)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString().replace(MARK.encode(), b"\xff\xfe\x80\xc0QQ"))
    assert import_model(path).graph.nodes


@pytest.mark.parametrize(
    ("location", "offset"),
    [("a" * 5000, "0"), ("a/" * 3000, "0"), ("a\0b", "0"), ("w.bin", "9" * 30), ("w.bin", str(2**63))],
    ids=["long name", "deep name", "NUL", "large offset", "offset of 64 bits"],
)
def test_external_data_in_absurd_places(location: str, offset: str, tmp_path: Path) -> None:
    model = add_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": offset}.items():
        tensor.external_data.add(key=key, value=value)
    (tmp_path / "w.bin").write_bytes(bytes(64))
    message = message_of(save(model, tmp_path))
    assert "external data" in message and len(message) < 500 and "\n" not in message


def test_a_model_that_is_a_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    assert "no regular file" in message_of(tmp_path / "m.onnx")


def test_index_out_of_range_is_found_while_folding(tmp_path: Path) -> None:
    node = helper.make_node("Gather", ["c", "i"], ["y"])
    path = save(tiny_model([node], {}, ["y"], {"c": np.ones(3, np.float32), "i": np.array([7])}), tmp_path)
    message = message_of(path)
    assert_one_line(message, path)
    assert "'Gather_0'" in message


def test_operator_on_integers_is_unsupported_not_invalid(tmp_path: Path) -> None:
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    path = save(tiny_model(nodes, {"x": [2]}, ["y"], opset=14, output_type=TensorProto.INT64), tmp_path)
    assert "must be float" in message_of(path, UnsupportedError)


def test_shapes_that_do_not_fit_the_network_are_said(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    path = save(tiny_model([node], {"x": ["N", "D"]}, ["y"], {"w": np.ones((4, 2), np.float32)}), tmp_path)
    with pytest.raises(ModelError, match=r"'MatMul_0' .* with inputs x \[1, 5\]"):
        import_model(path, {"x": (1, 5)})


def test_folding_does_not_take_memory_without_bound(tmp_path: Path) -> None:
    node = helper.make_node("Pad", ["c", "p"], ["y"])
    constants = {"c": np.ones(1, np.float32), "p": np.array([0, 2**40])}
    path = save(tiny_model([node], {}, ["y"], constants), tmp_path)
    assert [n.operator.name for n in import_model(path).graph.nodes] == ["Pad"]


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x08\x02\x10\x01"])
def test_tensor_file_that_is_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "input_0.pb"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_tensor(path)
    assert_one_line(str(caught.value), path)


def test_missing_tensor_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent.pb"):
        read_tensor(tmp_path / "absent.pb")


def test_operator_that_is_newer_than_the_models_operator_set(tmp_path: Path) -> None:
    node = helper.make_node("HardSwish", ["x"], ["y"])
    model = tiny_model([node], {"x": [2, 3]}, ["y"], opset=13)
    message = message_of(save(model, tmp_path), UnsupportedError)
    assert "opset 13 has no operator of this name" in message
