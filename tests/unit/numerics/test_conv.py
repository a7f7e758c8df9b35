from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.core.types import Array, Quantization
from qglow.numerics.conv import conv_accumulate, conv_float, conv_int8, exact_float, output_shape
from qglow.numerics.requantize import multiplier, requantize
from qglow.numerics.weights import bias_scales
from tests.fuzzing import examples
from tests.unit.numerics.oracle import ort, relative_error


@dataclass(frozen=True)
class Problem:
    """A convolution: input N x C x H x W, O filters, and how they slide."""

    x_shape: tuple[int, int, int, int]
    outputs: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    group: int = 1

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return (self.outputs, self.x_shape[1] // self.group, *self.kernel)

    @property
    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("strides", "pads", "dilations", "group")}


PROBLEMS = [
    Problem((1, 3, 7, 9), 4),
    Problem((2, 3, 7, 9), 4, pads=(1, 1, 1, 1)),
    Problem((1, 3, 8, 8), 5, (1, 1), (2, 2)),
    Problem((1, 4, 11, 6), 8, (3, 5), (2, 1), (1, 2, 0, 3), (2, 1), 2),
    Problem((2, 6, 9, 9), 6, strides=(2, 2), pads=(1, 1, 1, 1), group=6),
    Problem((1, 6, 5, 5), 12, pads=(0, 1, 1, 0), group=6),
    Problem((1, 1, 1, 1), 1, (1, 1)),
    Problem((1, 5, 1, 12), 3, (1, 4), (1, 3), (0, 2, 0, 2)),
    Problem((1, 130, 4, 4), 3, (2, 2)),
    Problem((0, 3, 5, 5), 2),
]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    group, per_group, each = draw(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)))
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    size = [draw(st.integers(dilations[i] * (kernel[i] - 1) + 1, 8)) for i in range(2)]
    pads = draw(st.tuples(*[st.integers(0, 2)] * 4))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    shape = (draw(st.integers(1, 2)), group * per_group, size[0], size[1])
    return Problem(shape, group * each, kernel, strides, pads, dilations, group)


def slow_sums(p: Problem, x: Array, zero_x: int, w: Array, zero_w: Array, bias: Array) -> Array:
    """Every output from its definition, in Python integers."""
    shape = output_shape(p.x_shape, p.w_shape, **p.options)
    sums = np.zeros(shape, object)
    each = p.outputs // p.group
    for n, o, oh, ow in itertools.product(*map(range, shape)):
        total = int(bias[o])
        for c, kh, kw in itertools.product(*map(range, p.w_shape[1:])):
            h = oh * p.strides[0] - p.pads[0] + kh * p.dilations[0]
            v = ow * p.strides[1] - p.pads[1] + kw * p.dilations[1]
            if 0 <= h < p.x_shape[2] and 0 <= v < p.x_shape[3]:
                source = int(x[n, o // each * p.w_shape[1] + c, h, v]) - zero_x
                total += source * (int(w[o, c, kh, kw]) - int(zero_w[o]))
        sums[n, o, oh, ow] = total
    return sums


def integers(p: Problem, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    x = rng.integers(-128, 128, p.x_shape).astype(np.int8)
    w = rng.integers(-128, 128, p.w_shape).astype(np.int8)
    return x, w, rng.integers(-(2**20), 2**20, p.outputs).astype(np.int32)


@settings(max_examples=examples(40))
@given(problems(), st.integers(-128, 127), st.integers(0, 2**32 - 1))
def test_sums_are_exact_with_zero_points_of_input_and_weights(p: Problem, zero_x: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, w, bias = integers(p, random)
    zero_w = random.integers(-128, 128, p.outputs)
    result = conv_accumulate(x, zero_x, w, zero_w, bias, **p.options)
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, slow_sums(p, x, zero_x, w, zero_w, bias))


@pytest.mark.parametrize("p", PROBLEMS, ids=str)
def test_float_convolution_agrees_with_onnxruntime(p: Problem, rng: np.random.Generator) -> None:
    x = rng.normal(size=p.x_shape).astype(np.float32)
    w = rng.normal(size=p.w_shape).astype(np.float32)
    bias = rng.normal(size=p.outputs).astype(np.float32)
    result = conv_float(x, w, bias, **p.options)
    assert result.dtype == np.float32
    assert result.shape == output_shape(p.x_shape, p.w_shape, **p.options)
    if result.size:
        assert relative_error(result, ort("Conv", [x, w, bias], **p.options)) < 1e-6


@pytest.mark.parametrize("p", [p for p in PROBLEMS if p.x_shape[0]], ids=str)
def test_int8_convolution_equals_onnxruntime_in_every_bit(p: Problem, rng: np.random.Generator) -> None:
    x, w, bias = integers(p, rng)
    # Within these bounds 16-bit intermediate sums do not saturate on processors without VNNI.
    w = np.clip(w, -64, 64)
    bias //= 64
    scale_x, zero_x, scale_y, zero_y = np.float32(0.031), 9, np.float32(2.7), -17
    scales_w = rng.uniform(0.01, 0.1, p.outputs).astype(np.float32)
    inputs = [
        (x.astype(int) + 128).astype(np.uint8),
        scale_x,
        np.uint8(zero_x + 128),
        w,
        scales_w,
        np.zeros(p.outputs, np.int8),
        scale_y,
        np.uint8(zero_y + 128),
        bias,
    ]
    expected = ort("QLinearConv", inputs, np.uint8, **p.options).astype(int) - 128
    result = conv_int8(
        x,
        Quantization.per_tensor(scale_x, zero_x),
        w,
        Quantization.per_channel(scales_w, 0),
        bias,
        Quantization.per_tensor(scale_y, zero_y),
        **p.options,
    )
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, expected)


def test_bounds_of_a_fused_relu_narrow_the_clamp(rng: np.random.Generator) -> None:
    p = Problem((1, 3, 6, 6), 4)
    x, w, bias = integers(p, rng)
    x_quant, y_quant = Quantization.per_tensor(0.02, 3), Quantization.per_tensor(0.07, -40)
    w_quant = Quantization.per_tensor(0.01, 5)
    whole = conv_int8(x, x_quant, w, w_quant, bias // 16, y_quant)
    narrow = conv_int8(x, x_quant, w, w_quant, bias // 16, y_quant, lo=-40, hi=100)
    np.testing.assert_array_equal(narrow, np.clip(whole, -40, 100))
    assert np.any(whole < -40) and np.any(whole > 100)


def test_a_float_result_is_the_sum_times_the_product_of_scales(rng: np.random.Generator) -> None:
    p = Problem((1, 3, 6, 6), 4)
    x, w, bias = integers(p, rng)
    scales = rng.uniform(0.01, 0.1, 4).astype(np.float32)
    w_quant = Quantization.per_channel(scales, 0)
    result = conv_int8(x, Quantization.per_tensor(0.02, 3), w, w_quant, bias, None, lo=0.0, hi=900.0)
    acc = conv_accumulate(x, 3, w, 0, bias)
    product = acc.astype(np.float32) * (np.float32(0.02) * scales)[:, None, None]
    np.testing.assert_array_equal(result, np.clip(product, 0.0, 900.0))
    assert result.dtype == np.float32


def test_int8_is_the_accumulator_requantized_per_channel(rng: np.random.Generator) -> None:
    p = Problem((2, 4, 5, 5), 3)
    x, w, bias = integers(p, rng)
    scales = rng.uniform(0.01, 0.1, 3).astype(np.float32)
    y_quant = Quantization.per_tensor(1.3, 4)
    result = conv_int8(
        x, Quantization.per_tensor(0.02, 3), w, Quantization.per_channel(scales, 0), bias, y_quant
    )
    m = multiplier(0.02, scales, 1.3)[:, None, None]
    np.testing.assert_array_equal(result, requantize(conv_accumulate(x, 3, w, 0, bias), m, y_quant))


def test_sums_beyond_float32_are_still_exact() -> None:
    x = np.full((1, 2000, 1, 1), -128, np.int8)
    w = np.full((1, 2000, 1, 1), -127, np.int8)
    x[0, 0], w[0, 1] = -127, -126
    expected = 255 * 127 * 1998 + 254 * 127 + 255 * 126
    assert conv_accumulate(x, 127, w)[0, 0, 0, 0] == expected
    centred = x.astype(np.int16) - 127
    assert exact_float(centred, w.reshape(1, -1)) is np.float64
    assert exact_float(centred[:, :500], w.reshape(1, -1)[:, :500]) is np.float32


def test_scales_of_sums_do_not_underflow_to_zero() -> None:
    assert bias_scales(1e-20, np.array([1e-18]))[0] > 0.0


@pytest.mark.parametrize(
    "x, w, group",
    [((1, 3, 4, 4), (2, 2, 3, 3), 1), ((1, 4, 4, 4), (3, 2, 3, 3), 2), ((3, 4, 4), (2, 3, 3, 3), 1)],
)
def test_shapes_that_do_not_go_together_are_refused(x: Any, w: Any, group: int) -> None:
    with pytest.raises(ValueError, match="fit|takes"):
        output_shape(x, w, group=group)


def test_a_window_larger_than_the_image_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        output_shape((1, 1, 2, 2), (1, 1, 3, 3))
    assert output_shape((1, 1, 2, 2), (1, 1, 3, 3), pads=(1, 0, 0, 1)) == (1, 1, 1, 1)


def test_infinite_bounds_are_the_default_of_float_results() -> None:
    one = Quantization.per_tensor(1.0, 0)
    x, w = np.full((1, 1, 1, 1), 100, np.int8), np.full((1, 1, 1, 1), 100, np.int8)
    assert conv_int8(x, one, w, one, None, None)[0, 0, 0, 0] == 10000.0
    assert conv_int8(x, one, w, one, None, None, hi=math.inf, lo=0.0)[0, 0, 0, 0] == 10000.0
