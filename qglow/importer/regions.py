"""Import of what reads regions of an image: https://onnx.ai/onnx/operators/onnx__RoiAlign.html"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import ElementType, Shape
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Clip, Mul, Sub
from qglow.graph.ops.functions import Floor
from qglow.graph.ops.reduce import ReduceMax, ReduceMean
from qglow.graph.ops.selection import Max, Where
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.sampling import PixelPlaces, Tap, linear_weights, sampled


def import_roi_align(node: ImportNode) -> None:
    """Import RoiAlign with a stated number of samples in each bin, averaged or the largest of them."""
    mode, ratio = node.string("mode", "avg"), node.integer("sampling_ratio", 0)
    node.require(mode in ("avg", "max"), f"mode {mode}")
    node.require(ratio > 0, "sampling_ratio 0: how many samples a bin has depends on the regions")
    half = node.string("coordinate_transformation_mode", "half_pixel")
    half = half if node.opset >= 16 else "output_half_pixel"
    node.require(half in ("half_pixel", "output_half_pixel"), f"coordinate_transformation_mode {half}")
    bins = (node.integer("output_height", 1), node.integer("output_width", 1))
    shape, regions = node.kind().shape, node.kind(1).shape[0]
    fits = len(shape) == 4 and node.kind(1).shape == (regions, 4) and min(bins) > 0 and node.kind().is_float
    node.require(fits, f"input {node.kind()} with regions {node.kind(1)}")
    places, scale = PixelPlaces(node), node.number("spatial_scale", 1.0)
    taps = []
    for axis, (size, count) in enumerate(zip(shape[2:], bins, strict=True)):
        ends = [
            places.do(Mul(), places.column(node.value(1), corner), scale, part="scaled")
            for corner in (1 - axis, 3 - axis)
        ]
        place = _bin_places(places, ends, count, ratio, half == "half_pixel")
        along = (regions, count * ratio, 1) if axis == 0 else (regions, 1, count * ratio)
        taps.append(_region_taps(places, place, size, along))
    image = node.value(2)
    image = image if image.type.element is ElementType.INT64 else places.whole(image)
    image = places.do(Reshape(shape=(regions, 1, 1)), image, part="images")
    samples = sampled(places, image, shape[2:], taps, Max() if mode == "max" else None)
    apart = (regions, bins[0], ratio, bins[1], ratio, shape[1])
    samples = places.do(Reshape(shape=apart), samples, part="bins")
    pooled = node.emit(ReduceMax((2, 4)) if mode == "max" else ReduceMean((2, 4)), samples, part="pooled")
    pooled = places.do(Reshape(shape=(regions, *bins, shape[1])), pooled, part="regions")
    node.emit(Transpose(perm=(0, 3, 1, 2)), pooled)


def _bin_places(places: PixelPlaces, ends: Sequence[Value], bins: int, ratio: int, half: bool) -> Value:
    """Places of all samples along one axis of regions, [regions, bins * ratio]."""
    if half:
        ends = [places.do(Sub(), end, 0.5, part="end") for end in ends]
    extent = places.do(Sub(), ends[1], ends[0], part="extent")
    extent = extent if half else places.do(Clip(lo=1.0), extent, part="at_least_1")
    column = Reshape(shape=(extent.type.size, 1))
    extent, start = (places.do(column, value, part="region") for value in (extent, ends[0]))
    steps = ((np.arange(bins * ratio) + 0.5) / (bins * ratio)).astype(np.float32)
    stepped = places.do(Mul(), extent, places.node.part_constant("steps", steps), part="stepped")
    return places.do(Add(), stepped, start, part="pixel")


def _region_taps(places: PixelPlaces, place: Value, size: int, shape: Shape) -> list[Tap]:
    """Two pixels at every place of a region; none counts where it is more than a pixel outside."""
    off = places.outside(place, -1.0, float(size))
    held = places.do(Clip(lo=0.0, hi=size - 1.0), place, part="held")
    first = places.do(Floor(), held, part="first")
    rest = places.do(Sub(), held, first, part="rest")
    taps: list[Tap] = []
    for offset, weight in enumerate(linear_weights(places, rest)):
        pixel = places.do(Add(), first, float(offset), part="tap")
        pixel = places.whole(places.do(Clip(lo=0.0, hi=size - 1.0), pixel, part="there"))
        weight = places.do(Where(), off, 0.0, weight, part="weight")
        apart = [places.do(Reshape(shape=shape), value, part="axis") for value in (pixel, weight)]
        taps.append((apart[0], apart[1]))
    return taps


RULES: dict[str, ImportRule] = {"RoiAlign": ImportRule(import_roi_align, newest=22)}
