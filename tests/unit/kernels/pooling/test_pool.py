"""Pooling kernels give the bits of their numpy reference on every ISA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qglow.core.types import ElementType, Quantization, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.memory import Copy, FillPadding
from qglow.instructions.ops.pool import AveragePool, MaxPool
from qglow.kernels.pooling.means import WORD_TAPS
from qglow.kernels.pooling.window import Segment, segments
from tests.runtimes import assert_same_bits

# Image height and width, kernel, strides, pads.
WINDOWS = [
    ((7, 9), (3, 3), (2, 2), (1, 1, 1, 1)),
    ((5, 5), (2, 2), (2, 2), (0, 0, 0, 0)),
    ((6, 4), (3, 2), (1, 3), (2, 0, 1, 1)),
    ((8, 11), (8, 11), (1, 1), (0, 0, 0, 0)),
    ((40, 6), (40, 6), (1, 1), (0, 0, 0, 0)),
    ((3, 3), (3, 3), (3, 3), (0, 0, 0, 0)),
]


def int8_type(shape: tuple[int, ...], scale: float, zero: int) -> TensorType:
    return TensorType(ElementType.INT8, shape, Quantization.per_tensor(scale, zero))


@pytest.mark.parametrize("channels", [1, 16, 70])
@pytest.mark.parametrize("window", WINDOWS)
def test_pools(window: tuple[tuple[int, ...], ...], channels: int) -> None:
    rng = np.random.default_rng(channels)
    size, kernel, strides, pads = window
    shape = (2, *size, channels)
    values = rng.standard_normal(shape).astype(np.float32)
    values.reshape(-1)[:3] = (np.nan, np.inf, -np.inf)
    images = rng.integers(-128, 128, shape).astype(np.int8)
    builder = ProgramBuilder("pools")
    floats = builder.placeholder("floats", float_type(*shape))
    bytes_ = builder.placeholder("bytes", int8_type(shape, 0.1, -7))
    largest = MaxPool(kernel, strides, pads)
    result = largest.output_shape(shape)
    operations = [
        largest,
        AveragePool(kernel, strides, pads),
        AveragePool(kernel, strides, pads, count_include_pad=True),
    ]
    for number, operation in enumerate(operations):
        real = builder.placeholder(f"float{number}", float_type(*result))
        builder.emit("pool", operation, real, floats)
        same = isinstance(operation, MaxPool)
        kind = int8_type(result, 0.1, -7) if same else int8_type(result, 0.04, 20)
        builder.emit("pool", operation, builder.placeholder(f"byte{number}", kind), bytes_)
    assert_same_bits(builder.finish(), {"floats": values, "bytes": images})


def test_windows_of_very_many_taps_together() -> None:
    images = np.random.default_rng(0).integers(-128, 128, (1, 11, 9, 16)).astype(np.int8)
    kind = int8_type(images.shape, 0.1, -7)
    builder = ProgramBuilder("wide")
    operation = MaxPool((13, 5), pads=(6, 2, 6, 2))
    builder.emit("pool", operation, builder.placeholder("dest", kind), builder.placeholder("bytes", kind))
    assert_same_bits(builder.finish(), {"bytes": images})


@pytest.mark.parametrize("taps", [WORD_TAPS, WORD_TAPS + 1])
def test_means_of_the_largest_sums(taps: int) -> None:
    """As many of the largest bytes as words hold, and one more; lanes differ in one tap."""
    images = np.full((1, taps, 1, 70), 127, np.int8)
    images[0, 0, 0] = np.arange(-35, 35)
    builder = ProgramBuilder("large")
    src = builder.placeholder("src", int8_type(images.shape, 1.0, 127))
    dest = builder.placeholder("dest", int8_type((1, 1, 1, 70), 1.0 / taps, 100))
    builder.emit("pool", AveragePool((taps, 1)), dest, src)
    assert_same_bits(builder.finish(), {"src": images})


def test_slices_and_padding() -> None:
    """From a padded buffer, whose padding must not count, into two channel slices."""
    shape = (1, 6, 6, 20)
    kind, part, whole = (int8_type(s, 0.1, 100) for s in (shape, (1, 3, 3, 20), (1, 3, 3, 40)))
    builder = ProgramBuilder("pools")
    src, dest = builder.placeholder("src", kind), builder.placeholder("dest", whole)
    padded = builder.activation("padded", kind, (1, 1, 1, 1))
    builder.emit("pad", FillPadding((1, 1, 1, 1)), padded)
    builder.emit("in", Copy(), padded, src)
    for start in (0, 20):
        view = builder.view("part", dest, part, (0, 0, 0, start))
        builder.emit("pool", MaxPool((3, 3), (2, 2), (1, 1, 0, 0)), view, padded)
    data = np.random.default_rng(0).integers(-128, -100, shape).astype(np.int8)
    assert_same_bits(builder.finish(), {"src": data})


def test_exact_ties_and_extreme_ratios() -> None:
    """Sums that divide to halves, and a ratio of scales that overflows every int."""
    shape = (1, 4, 4, 16)
    data = (np.arange(256) - 128).astype(np.int8).reshape(shape)
    for scale in (1.0, 0.5, 1e-30):
        builder = ProgramBuilder("ties")
        src = builder.placeholder("src", int8_type(shape, 1.0, 0))
        dest = builder.placeholder("dest", int8_type((1, 2, 2, 16), scale, 1))
        builder.emit("pool", AveragePool((2, 2), (2, 2)), dest, src)
        assert_same_bits(builder.finish(), {"src": data})


def test_segments_group_positions_by_their_taps() -> None:
    assert segments(4, 7, 3, 2, (1, 1)) == [
        Segment(0, 1, 1, 3, 3),
        Segment(1, 3, 0, 3, 3),
        Segment(3, 4, 0, 2, 3),
    ]
    assert segments(1, 5, 5, 1, (0, 0)) == [Segment(0, 1, 0, 5, 5)]
    # What hangs over the padding in ceil mode is not in it.
    assert segments(3, 5, 3, 2, (1, 0))[-1] == Segment(2, 3, 0, 2, 2)
    assert segments(3, 5, 2, 2, (2, 1), dilation=3)[1:] == [Segment(1, 2, 0, 2, 2), Segment(2, 3, 0, 1, 2)]


GENERAL = [
    ((9, 8), (3, 2), (2, 1), (2, 1, 3, 0), (2, 3), False),
    ((8, 9), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), True),
    ((7, 8), (2, 3), (3, 2), (1, 2, 2, 1), (3, 2), True),
]


@pytest.mark.parametrize("window", GENERAL, ids=str)
def test_dilated_and_overhanging_pools(window: tuple[Any, ...]) -> None:
    size, kernel, strides, pads, dilations, ceil_mode = window
    shape = (2, *size, 18)
    rng = np.random.default_rng(1)
    builder = ProgramBuilder("pools")
    floats = builder.placeholder("floats", float_type(*shape))
    bytes_ = builder.placeholder("bytes", int8_type(shape, 0.1, -7))
    form = (kernel, strides, pads, dilations, ceil_mode)
    for number, operation in enumerate((MaxPool(*form), AveragePool(*form), AveragePool(*form, True))):
        result = operation.output_shape(shape)
        builder.emit("pool", operation, builder.placeholder(f"float{number}", float_type(*result)), floats)
        builder.emit(
            "pool", operation, builder.placeholder(f"byte{number}", int8_type(result, 0.1, -7)), bytes_
        )
    inputs = {
        "floats": rng.standard_normal(shape).astype(np.float32),
        "bytes": rng.integers(-128, 128, shape).astype(np.int8),
    }
    assert_same_bits(builder.finish(), inputs)
