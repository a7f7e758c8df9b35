"""A model's scales of an activation's channels go into weights, where that changes no integer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qglow
from qglow.core.types import Array
from tests.unit.importer.foreign_writer import ForeignWriter
from tests.unit.importer.tiny import save, session

CHANNELS = 6


def writer() -> ForeignWriter:
    values = np.random.default_rng(2).normal(0, 1, (1, 3, 7, 7)).astype(np.float32)
    return ForeignWriter({"x": values}, np.int8, 17)


def first(w: ForeignWriter) -> str:
    """A convolution of the input, with a bias that is a number of steps of its sums."""
    x = w.quantized("x")
    weights, bias = w.weights_and_bias(w.given(x), CHANNELS, 3, 3, 3)
    return w.node("Conv", x, weights, bias, kernel_shape=[3, 3])


def second(w: ForeignWriter, value: str, filters: int, group: int = CHANNELS) -> str:
    """A convolution behind it, without a bias."""
    weights = w.weights(filters, CHANNELS // group, 3, 3)
    return w.node("Conv", value, weights, group=group, kernel_shape=[3, 3])


def both(w: ForeignWriter, folder: Path) -> tuple[list[str], Array, Array]:
    """Names of the nodes in int8, qglow's result, and onnxruntime's."""
    path = save(w.model(), folder)
    (expected,) = session(path).run(None, dict(w.feeds))
    quantized = qglow.load_model(path, native=True).quantize()
    (found,) = quantized.compile()(w.feeds).values()
    (again,) = session(quantized.qdq_bytes()).run(None, dict(w.feeds))
    assert np.abs(again - found).max() <= _step(expected) * 1.01, "as exported"
    assert quantized.report is not None
    return [node.name for node in quantized.report.quantized], found, expected


def _step(array: Array) -> float:
    return float(max(array.max(), 0) - min(array.min(), 0)) / 255


@pytest.mark.parametrize("filters", [1, 2])
@pytest.mark.parametrize("largest", [None, 2.0])
def test_a_depthwise_convolution_and_the_one_before_are_int8(
    filters: int, largest: float | None, tmp_path: Path
) -> None:
    w = writer()
    bounds = [w.constant(0.0), *([] if largest is None else [w.constant(largest)])]
    apart = w.quantized_by_channel(w.node("Clip", first(w), *bounds), np.uint8)
    w.outputs = [w.quantized(second(w, apart, filters * CHANNELS))]
    int8, found, expected = both(w, tmp_path)
    assert [name.split("_")[0] for name in int8] == ["Conv", "Conv"]
    _assert_like(found, expected)


def test_a_bound_below_the_largest_integer_stays(tmp_path: Path) -> None:
    w = writer()
    scales = w.constant(np.linspace(0.02, 0.05, CHANNELS)), w.constant(np.zeros(CHANNELS), np.uint8)
    bound = w.node("Clip", first(w), w.constant(0.0), w.constant(1.0))
    apart = w.node("DequantizeLinear", w.node("QuantizeLinear", bound, *scales), *scales)
    w.outputs = [w.quantized(second(w, apart, CHANNELS))]
    _assert_like(*both(w, tmp_path)[1:])


@pytest.mark.parametrize("kind", ["sum", "zeros", "shared"])
def test_other_readers_and_zero_points_give_what_the_model_says(kind: str, tmp_path: Path) -> None:
    w = writer()
    before = w.node("Relu", first(w))
    zeros = np.arange(CHANNELS) if kind == "zeros" else None
    apart = w.quantized_by_channel(before, np.uint8, zeros)
    result = second(w, apart, CHANNELS, 1 if kind == "sum" else CHANNELS)
    if kind == "shared":
        ends = (w.constant(n, np.int64) for n in ([1, 1], [4, 4], [2, 3]))
        result = w.node("Add", result, w.node("Slice", before, *ends))
    w.outputs = [w.quantized(result)]
    _assert_like(*both(w, tmp_path)[1:])


def _assert_like(found: Array, expected: Array) -> None:
    """The integers of onnxruntime, but for ties of a float product."""
    assert np.abs(found - expected).max() <= _step(expected) * 1.01
    assert np.mean(found != expected) <= 0.02
