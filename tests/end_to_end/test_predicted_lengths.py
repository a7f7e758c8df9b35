"""Models that predict how long their output is, such as those that speak a text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import qglow
from qglow.core.types import Array
from qglow.report.evaluation import run_over_data
from tests.unit.importer.tiny import save, session

node = helper.make_node
PHONEMES, WIDTH, BANDS = 12, 16, 5


def speaker() -> ModelProto:
    """Bands [1, frames, 5] of phonemes [1, length], each as many frames long as a layer says."""
    random = np.random.default_rng(8)
    nodes = [
        node("Gather", ["table", "phonemes"], ["rows"]),
        node("MatMul", ["rows", "w"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("MatMul", ["r", "d"], ["seen"]),
        node("Sigmoid", ["seen"], ["share"]),
        node("Mul", ["share", "most"], ["long"]),
        node("Ceil", ["long"], ["durations"]),
        node("Squeeze", ["durations", "last"], ["flat"]),
        node("CumSum", ["flat", "one"], ["ends"]),
        node("ReduceMax", ["ends"], ["total"], keepdims=0),
        node("Cast", ["total"], ["count"], to=TensorProto.INT64),
        node("Range", ["zero", "count", "step"], ["frames"]),
        node("Cast", ["frames"], ["times"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["ends", "last"], ["columns"]),
        node("LessOrEqual", ["columns", "times"], ["passed"]),
        node("Cast", ["passed"], ["ones"], to=TensorProto.INT64),
        node("ReduceSum", ["ones", "axis"], ["places"], keepdims=0),
        node("Squeeze", ["places", "none"], ["place"]),
        node("MatMul", ["r", "b"], ["bands"]),
        node("Gather", ["bands", "place"], ["y"], axis=1),
    ]
    constants: dict[str, Array] = {
        "table": random.normal(size=(PHONEMES, WIDTH)).astype(np.float32),
        "w": (random.normal(size=(WIDTH, WIDTH)) / 3).astype(np.float32),
        "d": (random.normal(size=(WIDTH, 1)) / 3).astype(np.float32),
        "b": (random.normal(size=(WIDTH, BANDS)) / 3).astype(np.float32),
        "most": np.float32(4.0),
        "last": np.array([-1]),
        "one": np.array(1),
        "zero": np.array(0),
        "step": np.array(1),
        "axis": np.array([1]),
        "none": np.array([0]),
    }
    phonemes = helper.make_tensor_value_info("phonemes", TensorProto.INT64, [1, "length"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, None, BANDS])
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "speaker", [phonemes], [result], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def model(tmp_path: Path) -> qglow.Model:
    return qglow.load_model(save(speaker(), tmp_path))


def texts(folder: Path, lengths: tuple[int, ...]) -> tuple[Path, list[Array]]:
    random = np.random.default_rng(2)
    arrays = [random.integers(0, PHONEMES, (1, length)) for length in lengths]
    folder.mkdir()
    for number, array in enumerate(arrays):
        np.savez(folder / f"{number:02}.npz", phonemes=array)
    return folder, arrays


def test_a_text_is_data_and_no_parameter(model: qglow.Model, tmp_path: Path) -> None:
    """The values of all phonemes were asked for, which would have made one text a part of the model."""
    data, arrays = texts(tmp_path / "texts", (7, 4, 9, 7, 7, 5))
    assert isinstance(model.path, Path)
    given = session(model.path)
    spoken = run_over_data(model.compile(), data)
    for (_, found), phonemes in zip(spoken, arrays, strict=True):
        (wanted,) = given.run(None, {"phonemes": phonemes})
        assert found["y"].shape == wanted.shape
        np.testing.assert_allclose(found["y"], wanted, rtol=1e-4, atol=1e-5)


def test_what_is_in_front_of_the_length_is_int8(model: qglow.Model, tmp_path: Path) -> None:
    data, _ = texts(tmp_path / "texts", (7, 4, 9, 7, 7, 5))
    quantized = model.quantize(model.profile(data))
    assert {"Gemm"} <= {made.operator for made in quantized.report.quantized}
    assert quantized.verdict is not None and quantized.verdict.is_good
    assert "Data decides the shape of 'y'" in quantized.verdict.note
    assert qglow.compare(quantized, data).samples == 6
