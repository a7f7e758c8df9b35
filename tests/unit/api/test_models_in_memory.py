"""Models that no file has: bytes, messages and graphs do what their file does."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.errors import VerificationError
from qglow.graph.graph import Value
from tests.zoo import REPOSITORY

DIGITS = REPOSITORY / "calib_data" / "digits.onnx"
CALIBRATION = REPOSITORY / "calib_data" / "calib.npz"
TEST = REPOSITORY / "calib_data" / "test.npz"

FORMS: dict[str, Callable[[], qglow.ModelSource]] = {
    "bytes": DIGITS.read_bytes,
    "bytearray": lambda: bytearray(DIGITS.read_bytes()),
    "memoryview": lambda: memoryview(DIGITS.read_bytes()),
    "buffer": lambda: io.BytesIO(DIGITS.read_bytes()),
    "proto": lambda: onnx.load(DIGITS),
    "holder": lambda: SimpleNamespace(model_proto=onnx.load(DIGITS)),
    "graph": lambda: qglow.load_model(DIGITS).graph,
}


@pytest.fixture(scope="module")
def profile() -> qglow.Profile:
    return qglow.load_model(DIGITS).profile(CALIBRATION)


@pytest.mark.parametrize("form", FORMS)
def test_profile_is_that_of_the_file(form: str, profile: qglow.Profile) -> None:
    model = qglow.load_model(FORMS[form]())
    assert model.path is None and model.info.file == "model in memory"
    assert repr(model).startswith("Model('model in memory': ")
    found = model.profile(CALIBRATION)
    assert found.fingerprint == profile.fingerprint and found.data.hex == profile.data.hex
    assert found.values.keys() == profile.values.keys()
    assert model.quantize(profile, check=False, repair=False).text() == (
        qglow.load_model(DIGITS)
        .quantize(found, check=False, repair=False)
        .text()
        .replace("digits", "model", 1)
    )


def test_int8_graph_is_a_model_with_its_own_parameters(profile: qglow.Profile) -> None:
    int8 = qglow.load_model(DIGITS).quantize(profile, check=False, repair=False)
    again = qglow.load_model(int8.graph)
    assert again.is_quantized
    with np.load(TEST) as data:
        inputs = {"input": data["input"][:1]}
    expected = int8.interpret(inputs)["logits"]
    assert np.array_equal(again.quantize().interpret(inputs)["logits"], expected)


def test_whole_way_without_a_file(tmp_path: Path) -> None:
    proto = onnx.load(DIGITS)
    model = qglow.load_model(proto)
    profile = model.profile(CALIBRATION)
    quantized = model.quantize(profile)
    assert "model in memory" in repr(quantized) and quantized.source.path is None
    assert quantized.verdict is not None
    expected = qglow.compare(quantized, TEST)
    assert qglow.bench(quantized, alternations=2).threads >= 1
    assert qglow.profile_drift(profile, TEST).values

    path = tmp_path / "profile.yaml"
    qglow.save_profile(profile, path)
    assert "  path: null\n" in path.read_text()
    loaded = qglow.load_profile(path)
    assert loaded.model.path is None and loaded.model.sha256 == profile.model.sha256
    assert qglow.load_model(DIGITS).quantize(loaded).text().count("digits") == 1
    assert qglow.profile_drift(loaded, TEST, model=proto).values
    with pytest.raises(qglow.ModelError, match=r"given in memory and is in no file.*`model`"):
        qglow.profile_drift(loaded, TEST)

    quantized.save(tmp_path / "saved")
    saved = qglow.load_quantized(tmp_path / "saved")
    with pytest.raises(qglow.ModelError, match=r"given in memory and is in no file.*`model`"):
        qglow.compare(saved, TEST)
    assert qglow.compare(qglow.load_quantized(tmp_path / "saved", proto), TEST) == expected
    other = helper.make_model(proto.graph, producer_name="another")
    with pytest.raises(qglow.ModelError, match="or is another model"):
        qglow.compare(qglow.load_quantized(tmp_path / "saved", other), TEST)


def test_directory_of_free_shapes_is_given_its_model_again(tmp_path: Path) -> None:
    content = DIGITS.read_bytes()
    model = qglow.load_model(content)
    model.quantize(model.profile(CALIBRATION), check=False).save(tmp_path / "saved")
    images = np.zeros((3, 1, 8, 8), np.float32)
    again = qglow.load_quantized(tmp_path / "saved", content)
    assert again.compile()({"input": images})["logits"].shape == (3, 10)


def test_part_of_a_model_in_memory(tmp_path: Path) -> None:
    first = qglow.load_model(DIGITS).graph.nodes[0].output.name
    qglow.cut_model(onnx.load(DIGITS), tmp_path / "part.onnx", outputs=[first])
    assert list(qglow.load_model(tmp_path / "part.onnx").outputs) == [first]


def external(folder: Path) -> Path:
    """A model of one product whose weights lie in a file beside it."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [numpy_helper.from_array(np.eye(64, dtype=np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "linear.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_external_data_is_found_beside_a_path_alone(tmp_path: Path) -> None:
    path = external(tmp_path)
    x = {"x": np.arange(64, dtype=np.float32)[None]}
    assert np.array_equal(qglow.load_model(path).interpret(x)["y"], x["x"])
    assert np.array_equal(qglow.load_model(onnx.load(path)).interpret(x)["y"], x["x"])
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(
            qglow.ModelError, match=r"'w' keeps its data in another file, 'weights.bin'"
        ) as found:
            qglow.load_model(source)
        assert "\n" not in str(found.value) and "give the path" in str(found.value)


@pytest.mark.parametrize(
    ("source", "kind", "said"),
    [
        (b"", qglow.ModelError, "the model in memory is not an ONNX model"),
        (DIGITS.read_bytes()[:1000], qglow.ModelError, "the model in memory is not an ONNX model"),
        (b"\0\1 no model", qglow.ModelError, "the model in memory is not an ONNX model"),
        (onnx.ModelProto(), qglow.ModelError, "the model in memory is not an ONNX model"),
        (onnx.load(DIGITS).graph, qglow.UsageError, "not a GraphProto; onnx.helper.make_model"),
        (None, qglow.UsageError, "a NoneType is no model: give a path, bytes"),
        (SimpleNamespace(state_dict=dict), qglow.UsageError, "torch.onnx.export"),
        (SimpleNamespace(get_inputs=list), qglow.UsageError, "a session has no model"),
    ],
)
def test_what_is_no_model_is_one_line(source: object, kind: type[qglow.QglowError], said: str) -> None:
    with pytest.raises(kind, match=said) as found:
        qglow.load_model(source)  # type: ignore[arg-type]
    assert "\n" not in str(found.value)


def test_message_that_cannot_be_serialized_says_what_to_do() -> None:
    class ModelProto:
        def SerializeToString(self) -> bytes:
            raise ValueError("exceeds the maximum protobuf size\nof 2GB")

    with pytest.raises(qglow.ModelError, match=r"size of 2GB\): serialize what is larger") as found:
        qglow.load_model(ModelProto())
    assert "\n" not in str(found.value)


def test_graph_is_verified_first() -> None:
    graph = qglow.load_model(DIGITS).graph
    node = graph.nodes[-1]
    node.inputs = (Value("nowhere", node.inputs[0].type), *node.inputs[1:])  # type: ignore[union-attr]
    with pytest.raises(VerificationError, match="digits"):
        qglow.load_model(graph)


def test_load_says_what_opens_a_model() -> None:
    with pytest.raises(qglow.ArtefactError, match="open it with `qglow.load_model`"):
        qglow.load(DIGITS)
    with pytest.raises(qglow.UsageError, match=r"not from a ModelProto; `qglow.load_model` opens"):
        qglow.load(onnx.load(DIGITS))  # type: ignore[arg-type]


def test_array_is_data() -> None:
    with np.load(CALIBRATION) as data:
        array = data["input"]
    assert qglow.load_model(DIGITS.read_bytes()).profile(array).samples == len(array)
