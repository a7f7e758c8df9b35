"""Resampling of any axes. https://onnx.ai/onnx/operators/onnx__Resize.html

Nearest neighbours are data movement and keep the parameters of x; interpolation is arithmetic
and has parameters of its own. So there are two operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from qglow.core.types import Array, Shape, TensorType
from qglow.graph.axes import AxisEffect
from qglow.graph.operator import Operator, Policy, Rescaled, SameAs, register, require
from qglow.graph.ops.rules import Arrays, Movement, Types, float_operand, given, operand
from qglow.numerics import resize as numerics
from qglow.numerics.resize import COORDINATES, MODES, NEAREST, Sampling, Taps


def resampled(
    x: Shape, sizes: Shape, scales: tuple[float, ...], coordinates: str, roi: tuple[float, ...] = ()
) -> Iterator[tuple[int, Sampling]]:
    """The axes that change and how, the last one first."""
    rank = len(x)
    for axis in reversed(range(rank)):
        part = (roi[axis], roi[rank + axis]) if roi else (0.0, 1.0)
        sampling = Sampling(x[axis], sizes[axis], scales[axis], coordinates, *part)
        if not sampling.is_identity:
            yield axis, sampling


def _check(x: TensorType, sizes: Shape, scales: tuple[float, ...], coordinates: str) -> None:
    rank = len(x.shape)
    fits = len(sizes) == len(scales) == rank
    require(fits, f"sizes and scales need one entry for each of the {rank} axes of {x}")
    require(min(sizes, default=1) >= 0 and min(x.shape, default=1) >= 1, f"{x} cannot be resized to {sizes}")
    require(all(s > 0 and math.isfinite(s) for s in scales), f"scales {scales} are not positive")
    require(coordinates in COORDINATES, f"coordinates '{coordinates}' are none of {', '.join(COORDINATES)}")


def _apart(x: Shape, sizes: Shape, axis: int, changing: Iterable[tuple[int, object]]) -> AxisEffect | None:
    """The effect of an axis: places of one that stays as it is are apart."""
    stays = x[axis] == sizes[axis] and all(changed != axis for changed, _ in changing)
    return AxisEffect(axis) if stays else None


@register
@dataclass(frozen=True)
class ResizeNearest(Movement):
    """Every result is the element nearest to its place; `scales` says where that is."""

    name: ClassVar[str] = "ResizeNearest"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = SameAs(0)
    follows_shape: ClassVar[bool] = True

    sizes: tuple[int, ...]
    scales: tuple[float, ...]
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """`sizes`."""
        x = operand(inputs, 0, "x")
        _check(x, self.sizes, self.scales, self.coordinates)
        require(self.rounding in NEAREST, f"rounding '{self.rounding}' is none of {', '.join(NEAREST)}")
        require(self.coordinates != "tf_crop_and_resize", "a crop may reach outside: that is a Resize")
        return (x.with_shape(self.sizes),)

    def indices(self, x: Shape) -> list[tuple[int, Array]]:
        """Axes that change for an operand of this shape, in order, with int32 indices along them."""
        changing = resampled(x, self.sizes, self.scales, self.coordinates)
        return [(axis, numerics.nearest_indices(a, self.rounding)) for axis, a in changing]

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.take along each axis."""
        x = given(inputs, 0)
        for axis, indices in self.indices(x.shape):
            x = np.take(x, indices, axis)
        return (np.array(x),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Places of axes that are not resized are apart, and those of an axis that repeats each of them."""
        x = operand(inputs, 0, "x").shape
        indices = dict(self.indices(x)).get(axis)
        factor, left = divmod(self.sizes[axis], x[axis])
        if indices is None or left or not np.array_equal(indices, np.arange(self.sizes[axis]) // factor):
            return _apart(x, self.sizes, axis, resampled(x, self.sizes, self.scales, self.coordinates))
        return AxisEffect(axis, factor=factor)

    def scales_along(self, axis: int) -> bool:
        """The planes of an image are resized one by one."""
        return axis == 1

    def with_channels(self, count: int, inputs: Types) -> Self | None:
        """The planes of an image are resized one by one."""
        return replace(self, sizes=(self.sizes[0], count, *self.sizes[2:]))


@register
@dataclass(frozen=True)
class Resize(Operator):
    """Interpolation between elements, an axis after the other, the last one first.

    `roi` is the part of every axis that `tf_crop_and_resize` takes: all starts, then all ends;
    `extrapolation` is the result beyond x, `cubic` the coefficient of cubic interpolation.
    """

    name: ClassVar[str] = "Resize"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = Rescaled()
    follows_shape: ClassVar[bool] = True

    sizes: tuple[int, ...]
    scales: tuple[float, ...]
    mode: str = "linear"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    roi: tuple[float, ...] = ()
    extrapolation: float = 0.0

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """`sizes`."""
        x = float_operand(inputs, 0, "x")
        _check(x, self.sizes, self.scales, self.coordinates)
        require(self.mode in MODES, f"mode '{self.mode}' is none of {', '.join(MODES)}")
        require(self.rounding in NEAREST, f"rounding '{self.rounding}' is none of {', '.join(NEAREST)}")
        require(len(self.roi) in (0, 2 * len(x.shape)), f"roi {self.roi} does not fit {x}")
        require(all(map(math.isfinite, self.roi)), f"roi {self.roi} holds NaN or infinities")
        return (x.with_shape(self.sizes),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Places of axes that are not resized are apart."""
        x = operand(inputs, 0, "x").shape
        return _apart(x, self.sizes, axis, resampled(x, self.sizes, self.scales, self.coordinates, self.roi))

    def taps(self, x: Shape) -> list[tuple[int, Taps]]:
        """Axes that change for an operand of this shape, in order, with the taps of their results."""
        changing = resampled(x, self.sizes, self.scales, self.coordinates, self.roi)
        return [(axis, self._taps(sampling)) for axis, sampling in changing]

    def _taps(self, axis: Sampling) -> Taps:
        outside, smooth = self.exclude_outside, self.antialias
        if self.mode == "nearest":
            return numerics.nearest_taps(axis, self.rounding, self.extrapolation)
        if self.mode == "linear":
            return numerics.linear_taps(axis, outside, smooth, self.extrapolation)
        return numerics.cubic_taps(axis, self.cubic, outside, smooth, self.extrapolation)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.resize."""
        x = given(inputs, 0)
        for axis, taps in self.taps(x.shape):
            x = numerics.interpolate(x, taps, axis)
        return (np.asarray(x, np.float32),)
