"""Graphs as PyTorch, TFLite's converter and Ultralytics write them: onnxruntime's results, in integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import qglow
from qglow.core.types import Array
from tests.unit.importer import detector_forms, nncf_forms, pytorch_forms, tflite_forms
from tests.unit.importer.foreign_writer import ForeignWriter
from tests.unit.importer.tiny import save, session


@dataclass(frozen=True)
class Form:
    """A model, operators that have no parameters for all that they read and give, and what may differ.

    steps: of the outputs. share: of their elements. Where biases are float32, qglow rounds them to a step of
    the sums; where a float operator stands between integers, its last bit decides a tie.
    """

    write: Callable[[], ForeignWriter]
    real: frozenset[str]
    steps: int = 0
    share: float = 0.0


BETWEEN = frozenset({"Concat", "Slice", "ReduceMean"})
NORMS = frozenset({"LayerNormalization", "Div", "Softmax", "MatMul", "Add", "ReduceMean"})
X86_TRANSFORMER = NORMS | {"Reshape", "Transpose", "Gelu"}
FORMS = {
    "pt2e XNNPACK network": Form(lambda: pytorch_forms.network(np.int8, everywhere=True), BETWEEN),
    "pt2e XNNPACK network, one scale": Form(
        lambda: pytorch_forms.network(np.int8, everywhere=True, per_channel=False), BETWEEN
    ),
    "pt2e X86 network": Form(
        lambda: pytorch_forms.network(np.uint8, everywhere=False), BETWEEN | {"Add", "MaxPool", "Mul"}, 1, 1.0
    ),
    "pt2e XNNPACK transformer": Form(
        lambda: pytorch_forms.transformer(np.int8, everywhere=True), NORMS, 1, 0.5
    ),
    "pt2e X86 transformer": Form(
        lambda: pytorch_forms.transformer(np.uint8, everywhere=False), X86_TRANSFORMER, 2, 1.0
    ),
    "NNCF": Form(
        nncf_forms.network,
        frozenset({"HardSwish", "HardSigmoid", "GlobalAveragePool", "QuantizeLinear", "DequantizeLinear"}),
        2, 0.1,
    ),
    "TFLite int8": Form(lambda: tflite_forms.network(np.int8, per_channel=True), frozenset({"Softmax"})),
    "TFLite int8, one scale": Form(
        lambda: tflite_forms.network(np.int8, per_channel=False), frozenset({"Softmax"}), 1, 0.2
    ),
    "TFLite uint8": Form(
        lambda: tflite_forms.network(np.uint8, per_channel=False, weight_zero=128),
        frozenset({"Softmax"}), 1, 0.2,
    ),
    "Ultralytics uint8": Form(detector_forms.quantized_detector, frozenset({"Softmax", "Div"}), 1, 0.06),
    "Ultralytics uint8 per channel": Form(
        lambda: detector_forms.quantized_detector(per_channel=True), frozenset({"Softmax", "Div"}), 1, 0.06
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_graphs_of_other_tools_give_what_onnxruntime_gives(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    writer = form.write()
    path = save(writer.model(), tmp_path)
    expected = session(path).run(None, dict(writer.feeds))
    quantized = qglow.load_model(path, native=True).quantize()
    report = quantized.report
    assert report is not None
    kinds = {node.name.split("_")[0] for node in report.float_nodes if not node.name.endswith(".shape")}
    assert kinds <= form.real and report.quantized
    found = quantized.compile()(writer.feeds)
    for given, wanted in zip(found.values(), expected, strict=True):
        assert given.dtype == wanted.dtype and given.shape == wanted.shape
        apart = np.abs(wanted.astype(np.float64) - given)
        assert apart.max() <= form.steps * _step(wanted) * 1.01
        assert np.mean(apart > 0) <= form.share


def _step(array: Array) -> float:
    """Of an output in integers, or of one of floats whose 255 steps are what its range asks for."""
    if array.dtype != np.float32:
        return 1.0
    return (max(float(array.max()), 0.0) - min(float(array.min()), 0.0)) / 255


def test_a_detector_in_float16_is_computed_in_float32_and_quantizes(tmp_path: Path) -> None:
    writer = detector_forms.half_detector()
    path = save(writer.model(), tmp_path)
    (expected,) = session(path).run(None, dict(writer.feeds))
    model = qglow.load_model(path, native=True)
    (found,) = model.compile()(writer.feeds).values()
    largest = float(np.abs(expected).max())
    assert found.dtype == expected.dtype and np.abs(found - expected).max() <= 2e-3 * largest
    quantized = model.quantize(model.profile(dict(writer.feeds)))
    (found,) = quantized.compile()(writer.feeds).values()
    noise = np.square(expected - found, dtype=np.float64).sum()
    assert 10 * np.log10(np.square(expected, dtype=np.float64).sum() / noise) > 30.0
