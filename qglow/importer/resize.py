"""Import of Resize and Upsample, all definitions since opset 7.

https://onnx.ai/onnx/operators/onnx__Resize.html, onnx__Upsample.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Shape
from qglow.graph.ops.resize import Resize, ResizeNearest
from qglow.importer.node import ImportNode, ImportRule

CROP = "tf_crop_and_resize"


@dataclass(frozen=True)
class _Target:
    """Extents and scales of all axes of the result."""

    sizes: Shape
    scales: tuple[float, ...]


def import_upsample(node: ImportNode) -> None:
    """Import Upsample: floor for nearest neighbours, coordinates divided by the scale."""
    scales = node.numbers("scales") if node.opset < 9 else _floats(node, 1, "the scales")
    target = _by_scales(node, node.kind().shape, scales)
    mode = node.string("mode", "nearest")
    if mode == "nearest":
        operator = ResizeNearest(target.sizes, target.scales, "asymmetric", "floor")
        node.emit(operator, node.value(0))
        return
    node.require(mode in ("linear", "bilinear"), f"mode {mode}; supported are nearest and linear")
    node.emit(Resize(target.sizes, target.scales, "linear", "asymmetric"), node.value(0))


def import_resize(node: ImportNode) -> None:
    """Import Resize by scales or to sizes, of all axes or of those that are named."""
    if node.opset < 11:
        _import_first_resize(node)
        return
    shape = node.kind().shape
    stated = node.integers("axes", range(len(shape)))
    axes = tuple(node.axis(axis, len(shape)) for axis in stated)
    target = _target(node, shape, axes)
    mode, coordinates = (
        node.string("mode", "nearest"),
        node.string("coordinate_transformation_mode", "half_pixel"),
    )
    rounding = node.string("nearest_mode", "round_prefer_floor")
    roi = _roi(node, axes, len(shape)) if coordinates == CROP else ()
    extrapolation = node.number("extrapolation_value", 0.0)
    cubic, antialias = node.number("cubic_coeff_a", -0.75), node.integer("antialias", 0) != 0
    exclude = node.integer("exclude_outside", 0) != 0
    if mode == "nearest" and coordinates != CROP:
        node.emit(ResizeNearest(target.sizes, target.scales, coordinates, rounding), node.value(0))
        return
    operator = Resize(
        target.sizes,
        target.scales,
        mode,
        coordinates,
        rounding,
        cubic,
        exclude,
        antialias,
        roi,
        extrapolation,
    )
    node.emit(operator, node.value(0))


def _import_first_resize(node: ImportNode) -> None:
    """Opset 10: scales only; nearest neighbours are floor to grow and ceil to shrink."""
    target = _by_scales(node, node.kind().shape, _floats(node, 1, "the scales"))
    mode = node.string("mode", "nearest")
    if mode == "nearest":
        node.emit(ResizeNearest(target.sizes, target.scales, "asymmetric", "floor_or_ceil"), node.value(0))
        return
    node.emit(Resize(target.sizes, target.scales, mode, "asymmetric"), node.value(0))


def _target(node: ImportNode, shape: Shape, axes: Sequence[int]) -> _Target:
    policy = node.string("keep_aspect_ratio_policy", "stretch")
    scales = _floats(node, 2, "the scales") if node.has_input(2) else ()
    if scales:
        node.require(len(scales) == len(axes), f"{len(scales)} scales for {len(axes)} dimensions")
        every = [1.0] * len(shape)
        for axis, scale in zip(axes, scales, strict=True):
            every[axis] = scale
        return _by_scales(node, shape, every)
    sizes = [int(v) for v in node.array(3, "the sizes").reshape(-1)]
    node.require(len(sizes) == len(axes), f"{len(sizes)} sizes for {len(axes)} dimensions")
    return _to_sizes(node, shape, dict(zip(axes, sizes, strict=True)), policy)


def _by_scales(node: ImportNode, shape: Shape, scales: Sequence[float]) -> _Target:
    node.require(len(scales) == len(shape), f"{len(scales)} scales for {len(shape)} dimensions")
    exact = [np.float32(s) for s in scales]
    with np.errstate(over="ignore"):  # an infinite size is refused as a number
        sizes = tuple(int(np.floor(np.float32(d) * s)) for d, s in zip(shape, exact, strict=True))
    return _Target(sizes, tuple(float(s) for s in exact))


def _to_sizes(node: ImportNode, shape: Shape, wanted: dict[int, int], policy: str) -> _Target:
    node.require(all(shape[axis] > 0 for axis in wanted), f"{list(shape)} has nothing to resize")
    ratios = {axis: np.float32(size) / np.float32(shape[axis]) for axis, size in wanted.items()}
    if policy != "stretch":
        known = policy in ("not_larger", "not_smaller")
        node.require(known, f"keep_aspect_ratio_policy {policy} is not supported")
        one = min(ratios.values()) if policy == "not_larger" else max(ratios.values())
        ratios = dict.fromkeys(ratios, one)
        wanted = {axis: int(np.float32(shape[axis]) * one + np.float32(0.5)) for axis in wanted}
    sizes = tuple(wanted.get(axis, extent) for axis, extent in enumerate(shape))
    return _Target(sizes, tuple(float(ratios.get(axis, 1.0)) for axis in range(len(shape))))


def _roi(node: ImportNode, axes: Sequence[int], rank: int) -> tuple[float, ...]:
    given = _floats(node, 1, "the region of interest")
    node.require(len(given) == 2 * len(axes), f"a region of {len(given)} numbers for {len(axes)} dimensions")
    region = [0.0] * rank + [1.0] * rank
    for position, axis in enumerate(axes):
        region[axis], region[rank + axis] = given[position], given[len(axes) + position]
    return tuple(region)


def _floats(node: ImportNode, index: int, what: str) -> tuple[float, ...]:
    return tuple(float(v) for v in node.array(index, what).reshape(-1))


RULES: dict[str, ImportRule] = {
    "Resize": ImportRule(import_resize, newest=19),
    "Upsample": ImportRule(import_upsample, newest=9),
}
