"""Models with inputs that became constants: their profiles have the values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.cli.main import main
from qglow.core.types import Given
from qglow.profiling.given import read_values, written_values

RANDOM = np.random.default_rng(8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """y = Relu(Reshape(x, sizes) w) for x [1, 32] and an input with the sizes."""
    nodes = [
        helper.make_node("Reshape", ["x", "sizes"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32]),
        helper.make_tensor_value_info("sizes", TensorProto.INT64, [3]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    w = numpy_helper.from_array(RANDOM.normal(size=(8, 6)).astype(np.float32), "w")
    graph = helper.make_graph(nodes, "g", inputs, [output], [w])
    file = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    np.savez(tmp_path / "d.npz", x=RANDOM.normal(size=(12, 32)).astype(np.float32))
    return file


def test_a_profile_keeps_values_of_inputs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = path.parent
    data, made = ["--data", str(folder / "d.npz")], str(folder / "p.yaml")
    assert main(["profile", str(path), "--value", "sizes=1,4,8", *data, "-o", made]) == 0
    capsys.readouterr()
    assert main(["quantize", "--profile", made, "-o", str(folder / "q")]) == 0
    assert "values of sizes as in the profile" in capsys.readouterr().err
    assert qglow.load_quantized(folder / "q").outputs["y"].shape == (1, 4, 6)
    assert main(["profile", "drift", made, *data]) == 0
    assert main(["compare", str(folder / "q"), *data]) == 0
    assert "sizes" in Path(made).read_text() and "version: 3" in Path(made).read_text()


def test_profiles_of_other_values_are_not_merged(path: Path) -> None:
    def profiled(sizes: Given) -> qglow.Profile:
        return qglow.load_model(path, values={"sizes": sizes}).profile(path.parent / "d.npz")

    first, same, other = profiled([1, 4, 8]), profiled([1, 4, 8]), profiled(np.array([4, 1, 8]))
    assert qglow.merge_profiles([first, same]).model.values == {"sizes": [1, 4, 8]}
    with pytest.raises(qglow.ProfileError, match="values of inputs"):
        qglow.merge_profiles([first, other])


@pytest.mark.parametrize(
    "value",
    [
        3,
        0.5,
        True,
        [1, 4, 8],
        [[True], [False]],
        np.array([[1, -4]], np.int64),
        np.float32([np.nan, np.inf, 1e-45, 0.1]),
        np.array([True, False]),
        np.zeros((2, 0), np.float16),
        np.array(2.5),
    ],
)
def test_values_come_back_from_their_text(value: Given) -> None:
    [(name, found)] = read_values(written_values({"in put": value})).items()
    assert name == "in put" and isinstance(found, np.ndarray) == isinstance(value, np.ndarray)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(value))
    assert np.asarray(found).dtype == np.asarray(value).dtype


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("text", "no numbers and no array"),
        ([["text"]], "no numbers and no array"),
        ([[[[[[[1]]]]]]], "no numbers and no array"),
        ({"type": "object", "shape": [1], "elements": "1"}, "no type, shape and elements"),
        ({"type": "int64", "shape": [1]}, "no type, shape and elements"),
        ({"type": "int64", "shape": [-1], "elements": "1"}, "no shape"),
        ({"type": "int64", "shape": [2**20, 2**20], "elements": "1"}, "more than"),
        ({"type": "int64", "shape": [2], "elements": "1"}, "1 elements, and its shape 2"),
        ({"type": "int8", "shape": [1], "elements": "300"}, "no int8"),
        ({"type": "bool", "shape": [1], "elements": "yes"}, "no bool"),
        ({"type": "float32", "shape": [1], "elements": "x"}, "no float32"),
    ],
)
def test_text_that_is_no_value_is_refused(entry: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"'sizes' has .*{message}"):
        read_values({"sizes": entry})
