"""Inputs that programs are timed on: the first samples of data, or random ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.cli.main import main
from qglow.core.errors import DataError
from qglow.core.types import Array
from qglow.report import latencies
from tests.unit.report.models import linear_model

FEATURES = {"x": np.random.default_rng(6).normal(size=(3, 4)).astype(np.float32)}


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Array]]:
    """Inputs that onnxruntime's programs are given, in order."""
    given = list[dict[str, Array]]()
    made = latencies.of_onnxruntime

    def recorded(file: Path | bytes, inputs: Mapping[str, Array], threads: int) -> Callable[[], object]:
        given.append(dict(inputs))
        return made(file, inputs, threads)

    monkeypatch.setattr(latencies, "of_onnxruntime", recorded)
    return given


def test_the_first_samples_are_the_inputs_and_fill_a_larger_batch(fed: list[dict[str, Array]]) -> None:
    """Recorded are the inputs of the float file, and of the int8 one."""
    model = qglow.load_model(linear_model(), shapes={"x": (5, 4)})
    quantized = model.quantize(model.profile(FEATURES))
    qglow.bench(quantized, FEATURES, alternations=1)
    expected = FEATURES["x"][[0, 1, 2, 2, 2]]
    assert len(fed) == 2 and all(np.array_equal(inputs["x"], expected) for inputs in fed)


def test_a_number_without_axes_comes_from_data() -> None:
    proto = linear_model()
    proto.graph.input.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, []))
    proto.graph.output[0].name = "y"
    proto.graph.node.append(helper.make_node("Mul", ["logits", "t"], ["y"], "scaled"))
    data = [{"x": row[None], "t": np.full((), 0.5, np.float32)} for row in FEATURES["x"]]
    assert set(qglow.bench(qglow.load_model(proto), data, alternations=1).latencies)


def test_inputs_that_became_constants_are_no_inputs_of_any_program(fed: list[dict[str, Array]]) -> None:
    proto = linear_model()
    proto.graph.input.append(helper.make_tensor_value_info("axes", TensorProto.INT64, [1]))
    proto.graph.output[0].name = "y"
    proto.graph.node.append(helper.make_node("ReduceSum", ["logits", "axes"], ["y"], "sum", keepdims=1))
    model = qglow.load_model(proto, values={"axes": [1]})
    quantized = model.quantize(model.profile(FEATURES))
    for measured in (model, quantized):
        assert len(qglow.bench(measured, FEATURES, alternations=1).latencies) >= 2
    assert fed and all(list(inputs) == ["x"] for inputs in fed)


def test_inputs_without_data_are_random(fed: list[dict[str, Array]]) -> None:
    qglow.bench(qglow.load_model(linear_model(), shapes={"x": (2, 4)}), alternations=1)
    assert fed[0]["x"].shape == (2, 4) and np.unique(fed[0]["x"]).size == 8


def test_integers_that_random_ones_are_not_come_from_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of one row refuses the index 1, which random integers have."""
    table = helper.make_tensor("table", TensorProto.FLOAT, [1, 2], [0.5, 1.5])
    places = helper.make_tensor_value_info("places", TensorProto.INT64, [1, 8])
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "places"], ["y"], "rows")],
        "rows",
        [places],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 2])],
        [table],
    )
    model, data = tmp_path / "rows.onnx", tmp_path / "places.npz"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    np.savez(data, places=np.zeros((1, 8), np.int64))
    given = ["bench", str(model), "--alternations", "1"]
    assert main(given) == 4
    assert "they were drawn at random: name samples that fit (--data)" in capsys.readouterr().err
    assert main([*given, "--data", str(data)]) == 0


def test_data_that_does_not_fit_is_refused() -> None:
    model = qglow.load_model(linear_model(), shapes={"x": (1, 4)})
    with pytest.raises(DataError, match="input 'x'"):
        qglow.bench(model, {"x": np.ones((2, 3), np.float32)}, alternations=1)
    with pytest.raises(DataError, match="no samples"):
        qglow.bench(model, {"x": np.ones((0, 4), np.float32)}, alternations=1)
