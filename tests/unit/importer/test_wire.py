"""Large initializers beside the message: the same arrays, and what is odd is left to protobuf."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from qglow.core.errors import ModelError
from qglow.core.types import Array
from qglow.importer import import_model
from qglow.importer.loading import load
from qglow.importer.wire import without_large_data
from tests.unit.importer.tiny import save, tiny_model

LEAST = 64
CONSTANTS = {
    "odd": np.arange(3, dtype=np.float32),
    "large": np.arange(40, dtype=np.float32),
    "edge": np.arange(LEAST // 4, dtype=np.float32),
    "under": np.arange(LEAST // 4 - 1, dtype=np.float32),
}


def sum_model(constants: dict[str, Array] | None = None) -> ModelProto:
    constants = CONSTANTS if constants is None else constants
    nodes = [helper.make_node("ReduceSum", [name], [f"{name}_sum"], keepdims=0) for name in constants]
    return tiny_model(nodes, {}, [f"{name}_sum" for name in constants], constants)


def stripped(data: bytes) -> tuple[ModelProto, dict[int, memoryview]]:
    light, large = without_large_data(memoryview(data), LEAST)
    return ModelProto.FromString(light), large


def test_only_large_data_is_left_out() -> None:
    model = sum_model()
    light, large = stripped(model.SerializeToString())
    names = [light.graph.initializer[index].name for index in large]
    assert names == ["large", "edge"]
    for index, data in large.items():
        assert light.graph.initializer[index].HasField("raw_data")
        light.graph.initializer[index].raw_data = bytes(data)
    assert light == model


def test_a_graph_in_two_parts_counts_on() -> None:
    first, second = sum_model({"a": CONSTANTS["odd"]}), ModelProto()
    second.graph.initializer.append(numpy_helper.from_array(CONSTANTS["large"], "b"))
    light, large = stripped(first.SerializeToString() + second.SerializeToString())
    assert [tensor.name for tensor in light.graph.initializer] == ["a", "b"]
    assert {index: bytes(data) for index, data in large.items()} == {1: CONSTANTS["large"].tobytes()}


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, whose length takes two bytes of its own."""
    return bytes([number << 3 | 2, len(content) % 128 + 128, len(content) // 128]) + content


def test_data_twice_is_left_to_protobuf() -> None:
    tensor = numpy_helper.from_array(CONSTANTS["large"], "a").SerializeToString()
    again = TensorProto(raw_data=bytes(160)).SerializeToString()
    assert stripped(field(7, field(5, tensor)))[1]
    light, large = stripped(field(7, field(5, tensor + again)))
    assert not large
    assert light.graph.initializer[0].raw_data == bytes(160)


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_a_file_cut_short_is_handed_on_as_it_is(cut: int) -> None:
    data = sum_model().SerializeToString()[:-cut]
    light, large = without_large_data(memoryview(data), LEAST)
    assert light == data
    assert not large


def test_a_model_keeps_large_constants_wherever_they_lie(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    for padding in range(4):  # so that data begins at any address
        large = random.standard_normal((130, 129)).astype(np.float32)
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="n" * (padding + 1))]
        model = tiny_model(nodes, {"x": [1, 130]}, ["y"], {"w": large})
        graph = import_model(save(model, tmp_path)).graph
        [constant] = graph.constants()
        assert constant.data is not None and constant.data.flags.aligned
        assert np.array_equal(constant.data, large)


def test_large_data_of_the_wrong_size_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = tiny_model(nodes, {"x": [1, 130]}, ["y"], {"w": np.ones((130, 129), np.float32)})
    model.graph.initializer[0].dims[:] = [130, 130]
    with pytest.raises(ModelError, match="the file is damaged"):
        import_model(save(model, tmp_path))


def test_what_was_read_stays_when_the_file_is_cut_short(tmp_path: Path) -> None:
    weights = np.ones((512, 512), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    path = save(tiny_model(nodes, {"x": [1, 512]}, ["y"], {"w": weights}), tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    loaded = load(path)
    path.write_bytes(b"")
    assert bytes(loaded.large["w"]) == weights.tobytes()
    assert loaded.digest == digest
