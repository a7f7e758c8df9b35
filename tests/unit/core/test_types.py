"""Tensor types and quantization parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qglow.core.types import ElementType, Quantization, TensorType, float_type, format_float


@pytest.mark.parametrize(
    ("scales", "zeros", "axis"),
    [
        ((), (), None),
        ((0.5, 0.25), (0,), 0),
        ((0.5, 0.25), (0, 0), None),
        ((0.0,), (0,), None),
        ((-0.5,), (0,), None),
        ((math.inf,), (0,), None),
        ((math.nan,), (0,), None),
        ((0.1,), (0,), None),  # no float32
    ],
)
def test_impossible_parameters_are_refused(
    scales: tuple[float, ...], zeros: tuple[int, ...], axis: int | None
) -> None:
    with pytest.raises(ValueError, match="scale"):
        Quantization(scales, zeros, axis)


def test_scales_are_rounded_to_float32() -> None:
    assert Quantization.per_tensor(0.1, 3).scale == float(np.float32(0.1))


def test_per_channel_parameters_have_no_single_scale() -> None:
    quantization = Quantization.per_channel(np.array([0.5, 0.25]), 0)
    with pytest.raises(ValueError, match="no single scale"):
        _ = quantization.scale
    with pytest.raises(ValueError, match="no single zero point"):
        _ = quantization.zero_point


def test_sizes_and_ranges() -> None:
    kind = float_type(2, 3).quantized(Quantization.per_tensor(0.5, -128))
    assert (kind.size, kind.byte_size, float_type(2, 3).byte_size) == (6, 6, 24)
    assert kind.real_range() == (0.0, 127.5)
    assert float_type(2).real_range() is None
    assert float_type().size == 1


@pytest.mark.parametrize("element", list(ElementType))
def test_elements_know_their_numpy_type(element: ElementType) -> None:
    assert ElementType.of(element.dtype) is element
    assert TensorType(element, (3,)).byte_size == 3 * element.size


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.0"), (math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (1e-5, "1e-05")],
)
def test_floats_as_text(value: float, text: str) -> None:
    assert format_float(value) == text


@pytest.mark.parametrize("zero", [1 << 62, -(1 << 17)])
def test_zero_points_are_near_their_integers(zero: int) -> None:
    with pytest.raises(ValueError, match="a zero point is beyond"):
        Quantization.per_tensor(0.5, zero)
