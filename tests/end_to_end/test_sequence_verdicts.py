"""Verdicts on models whose outputs are signals, or scores at positions, of a length that the data decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import qglow
from qglow.core.types import Array

RANDOM = np.random.default_rng(5)


def _saved(
    path: Path, nodes: list[object], taken: list[object], given: list[object], weights: dict[str, Array]
) -> Path:
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, taken)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, given)
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def _filter(path: Path, given: list[object]) -> Path:
    """A filter of a signal [batch, N]."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "one"], ["channel"]),
        helper.make_node("Conv", ["channel", "w"], ["filtered"], pads=[2, 2]),
        helper.make_node("Squeeze", ["filtered", "one"], ["y"]),
    ]
    weights = {"one": np.int64([1]), "w": np.float32([[[0.1, 0.2, 0.4, 0.2, 0.1]]])}
    return _saved(path, nodes, ["batch", "N"], given, weights)


def _quantized(path: Path, data: Array, **options: object) -> qglow.QuantizedModel:
    samples = [{"x": each} for each in data]
    model = qglow.load_model(path, shapes={"x": (1, *data.shape[1:])})
    return model.quantize(model.profile(samples), **options)  # type: ignore[arg-type]


def test_a_signal_is_not_taken_for_scores(tmp_path: Path) -> None:
    times = np.arange(2000, dtype=np.float32)
    waves = np.stack([np.sin(times / RANDOM.uniform(3, 30)) for _ in range(8)])
    verdict = _quantized(_filter(tmp_path / "f.onnx", ["batch", "M"]), waves).verdict
    assert verdict is not None and verdict.word == "good" and verdict.agreement is None
    stated = _quantized(_filter(tmp_path / "g.onnx", ["batch", 2000]), waves).verdict
    assert stated is not None and stated.agreement is not None


def _tagger(path: Path) -> Path:
    """Probabilities [batch, T, 12] of signals [batch, T, 16]."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    weights = {
        "w": RANDOM.normal(size=(16, 32)).astype(np.float32),
        "v": RANDOM.normal(size=(32, 12)).astype(np.float32),
    }
    return _saved(path, nodes, ["batch", "T", 16], ["batch", "frames", 12], weights)


@pytest.mark.parametrize(
    ("calibration", "words"), [("minmax", {"good"}), ("percentile:51", {"broken", "suspicious"})]
)
def test_tags_are_compared_by_position(tmp_path: Path, calibration: str, words: set[str]) -> None:
    signals = RANDOM.normal(size=(8, 40, 16)).astype(np.float32)
    made = _quantized(_tagger(tmp_path / "t.onnx"), signals, calibration=calibration, repair=False)
    verdict = made.verdict
    assert verdict is not None and verdict.word in words
    [output] = verdict.outputs
    assert output.probabilities and output.agreement is not None and output.beyond_chance is not None
    assert output.beyond_chance < output.agreement < 1.0
