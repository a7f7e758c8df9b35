"""Import of images that are read between their pixels, at places that are computed while the model runs.

https://onnx.ai/onnx/operators/ AffineGrid, GridSample

The pixels of all images are rows of a table. A place takes some of them, its taps: each has a row number and
a weight, which are products and sums of one number and one weight along every axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from qglow.core.memory import require_more_memory
from qglow.core.types import Array, ElementType
from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul, Sub
from qglow.graph.ops.functions import Abs, Floor, Round
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.logic import Compare, Or
from qglow.graph.ops.movement import Gather, Slice
from qglow.graph.ops.selection import Min, Where
from qglow.graph.ops.shape import Cast, Reshape, Transpose
from qglow.importer.node import ImportNode, ImportRule

Tap = tuple[Value, Value | None]
"""Number of a pixel along one axis, int64, and its weight; None for 1."""
MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Names of modes before opset 20, by those of today."""
PADDING = ("zeros", "border", "reflection")
CUBIC = -0.75
"""The parameter of the cubic convolution. R. Keys, 1981, https://ieeexplore.ieee.org/document/1163711"""


class PixelPlaces:
    """Arithmetic on places, as parts of one node."""

    def __init__(self, node: ImportNode) -> None:
        self.node = node

    def do(self, operator: Operator, *operands: Value | float, part: str) -> Value:
        """Apply an operator to values and numbers."""
        return self.node.emit(operator, *map(self.operand, operands), part=part)

    def operand(self, value: Value | float) -> Value:
        """A number as a constant."""
        if isinstance(value, Value):
            return value
        return self.node.part_constant("number", np.array(value, np.float32))

    def column(self, table: Value, index: int) -> Value:
        """One column of a table [..., columns]."""
        leading = table.type.shape[:-1]
        starts, ends = (*(0,) * len(leading), index), (*leading, index + 1)
        part = self.node.emit(Slice(starts, ends, (1,) * len(ends)), table, part=f"column{index}")
        return self.node.emit(Reshape(shape=leading), part, part=f"place{index}")

    def whole(self, value: Value) -> Value:
        """Whole float numbers as int64."""
        return self.node.emit(Cast(to=ElementType.INT64), value, part="whole")

    def outside(self, value: Value, low: float, high: float) -> Value:
        """Whether numbers lie outside of a range."""
        below, above = (
            self.do(Compare(relation=relation), value, bound, part=relation)
            for relation, bound in (("less", low), ("greater", high))
        )
        return self.do(
            Or(), below, self.do(Compare(relation="greater"), value, high, part="above"), part="off"
        )


def import_grid_sample(node: ImportNode) -> None:
    """Import GridSample over any number of axes (cubic: two), with every mode and padding."""
    mode = node.string("mode", "linear" if node.opset >= 20 else "bilinear")
    mode, padding = MODES.get(mode, mode), node.string("padding_mode", "zeros")
    node.require(mode in ("linear", "nearest", "cubic"), f"mode {mode}")
    node.require(padding in PADDING, f"padding_mode {padding}; supported are {', '.join(PADDING)}")
    aligned = bool(node.integer("align_corners", 0))
    x, grid = node.value(0), node.value(1)
    images, channels, *sizes = x.type.shape
    fits = node.rank(1) == node.rank() and grid.type.shape[-1:] == (len(sizes),)
    node.require(
        fits and grid.type.shape[0] == images and len(sizes) > 0 and x.type.is_float and grid.type.is_float,
        f"input {x.type} with grid {grid.type}",
    )
    node.require(mode != "cubic" or len(sizes) == 2, f"mode cubic over {len(sizes)} axes")
    places = PixelPlaces(node)
    taps = []
    for axis, size in enumerate(sizes):
        place = _pixels(places, places.column(grid, len(sizes) - 1 - axis), size, aligned)
        taps.append(padded_taps(places, place, size, mode, padding, aligned))
    wanted = grid.type.shape[1:-1]
    firsts = np.arange(images).reshape(images, *(1,) * len(wanted))
    total = sampled(places, node.part_constant("images", firsts.astype(np.int64)), sizes, taps)
    last = len(wanted) + 1
    node.emit(Transpose(perm=(0, last, *range(1, last))), total)


def _pixels(places: PixelPlaces, place: Value, size: int, aligned: bool) -> Value:
    """Places from -1 to 1 as numbers of pixels."""
    moved = places.do(Add(), place, 1.0, part="moved")
    if aligned:
        half = places.do(Div(), moved, 2.0, part="half")
        return places.do(Mul(), half, float(size - 1), part="pixel")
    grown = places.do(Sub(), places.do(Mul(), moved, float(size), part="grown"), 1.0, part="shifted")
    return places.do(Div(), grown, 2.0, part="pixel")


def padded_taps(
    places: PixelPlaces, place: Value, size: int, mode: str, padding: str, aligned: bool
) -> list[Tap]:
    """The pixels around places along an axis, each with its weight, within padding of one of `PADDING`."""
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    if mode == "nearest":
        place = places.do(Round(), place, part="nearest")
    if padding == "border" and mode != "cubic":
        held = places.do(Clip(lo=0.0, hi=size - 1.0), place, part="held")
        place = places.do(Where(), places.outside(place, low, high), held, place, part="inside")
    elif padding == "reflection":
        place = _reflected(places, place, low, high)
    if mode == "nearest":
        return [_tap(places, place, None, size, padding, low, high)]
    first = places.do(Floor(), place, part="first")
    rest = places.do(Sub(), place, first, part="rest")
    weights = linear_weights(places, rest) if mode == "linear" else _cubic(places, rest)
    start = 0 if mode == "linear" else -1
    taps = []
    for offset, weight in enumerate(weights, start):
        pixel = first if offset == 0 else places.do(Add(), first, float(offset), part="tap")
        taps.append(_tap(places, pixel, weight, size, padding, low, high))
    return taps


def _tap(
    places: PixelPlaces, pixel: Value, weight: Value | None, size: int, padding: str, low: float, high: float
) -> Tap:
    """A pixel that is there in the place of one that may not be."""
    if padding == "zeros":
        off = places.outside(pixel, 0.0, size - 1.0)
        weight = places.do(Where(), off, 0.0, 1.0 if weight is None else weight, part="weight")
    elif padding == "reflection":
        pixel = _reflected(places, pixel, low, high)
    return places.whole(places.do(Clip(lo=0.0, hi=size - 1.0), pixel, part="there")), weight


def _reflected(places: PixelPlaces, place: Value, low: float, high: float) -> Value:
    """Places outside of a range thrown back at its ends, as often as it takes."""
    extent = high - low
    if extent <= 0:
        return places.do(Mul(), place, 0.0, part="only")
    away = places.do(Abs(), places.do(Sub(), place, low, part="from_low"), part="away")
    rounds = places.do(Floor(), places.do(Div(), away, 2 * extent, part="rounds"), part="whole_rounds")
    left = places.do(Sub(), away, places.do(Mul(), rounds, 2 * extent, part="passed"), part="left")
    back = places.do(Min(), left, places.do(Sub(), 2 * extent, left, part="other_way"), part="back")
    thrown = places.do(Add(), back, low, part="thrown")
    return places.do(Where(), places.outside(place, low, high), thrown, place, part="reflected")


def linear_weights(places: PixelPlaces, rest: Value) -> list[Value]:
    """Weights of the pixels on both sides of a place that lies `rest` behind the first."""
    return [places.do(Sub(), 1.0, rest, part="weight0"), rest]


def _cubic(places: PixelPlaces, rest: Value) -> list[Value]:
    """Weights of four pixels in a row for a place between the second and the third."""
    other = places.do(Sub(), 1.0, rest, part="other")
    far, near = (-4 * CUBIC, 8 * CUBIC, -5 * CUBIC, CUBIC), (1.0, 0.0, -(CUBIC + 3), CUBIC + 2)
    beyond = [places.do(Add(), side, 1.0, part="beyond") for side in (rest, other)]
    return [
        _polynomial(places, beyond[0], far),
        _polynomial(places, rest, near),
        _polynomial(places, other, near),
        _polynomial(places, beyond[1], far),
    ]


def _polynomial(places: PixelPlaces, x: Value, coefficients: Sequence[float]) -> Value:
    """Sum of coefficients times powers of x, from the highest power on."""
    total: Value | float = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        product = places.do(Mul(), total, x, part="product")
        total = product if coefficient == 0.0 else places.do(Add(), product, coefficient, part="term")
    return places.operand(total)


def sampled(
    places: PixelPlaces,
    image: Value,
    sizes: Sequence[int],
    taps: Sequence[Sequence[Tap]],
    join: Operator | None = None,
    picture: Value | None = None,
) -> Value:
    """Sums of taps (or what else joins them), [..., channels], for every choice of one along each axis.

    image: number of the image that each place is in. picture: the images (default: the node's first input).
    """
    rows, total = _rows(places.node, picture or places.node.value(0)), None
    for chosen in itertools.product(*taps):
        row, weight = image, None
        for (pixel, one), size in zip(chosen, sizes, strict=True):
            extent = places.node.part_constant("extent", np.array(size, np.int64))
            row = places.do(Mul(), row, extent, part="rows")
            row = places.do(Add(), row, pixel, part="row")
            if one is not None:
                weight = one if weight is None else places.do(Mul(), weight, one, part="weight")
        value = places.do(Gather(axis=0), rows, row, part="pixels")
        if weight is not None:
            column = places.do(Reshape(shape=(*weight.type.shape, 1)), weight, part="weights")
            value = places.do(Mul(), value, column, part="weighted")
        total = value if total is None else places.do(join or Add(), total, value, part="sum")
    assert total is not None
    return total


def _rows(node: ImportNode, picture: Value) -> Value:
    """The pixels of all images, [images * pixels, channels]."""
    shape = picture.type.shape
    last = node.emit(Transpose(perm=(0, *range(2, len(shape)), 1)), picture, part="channels_last")
    return node.emit(Reshape(shape=(math.prod(shape) // shape[1], shape[1])), last, part="rows")


def import_affine_grid(node: ImportNode) -> None:
    """Import AffineGrid of a constant size: the places of an image's pixels, moved by matrices."""
    aligned = bool(node.integer("align_corners", 0))
    sizes = [int(size) for size in node.array(1, "the size").reshape(-1)][2:]
    theta, axes = node.value(0), len(sizes)
    images = theta.type.shape[0] if theta.type.shape else 0
    fits = theta.type.shape == (images, axes, axes + 1) and min(sizes, default=0) > 0
    node.require(fits and theta.type.is_float, f"theta {theta.type} with size {sizes}")
    require_more_memory(4 * math.prod(sizes) * (axes + 1), f"node '{node.name}'")
    lines = [_line(size, aligned) for size in sizes]
    grids = np.meshgrid(*lines, indexing="ij")[::-1]
    pixels = np.stack([*grids, np.ones(sizes)], -1).reshape(1, -1, axes + 1).astype(np.float32)
    turned = node.emit(Transpose(perm=(0, 2, 1)), theta, part="turned")
    stacked = np.repeat(pixels, images, 0)
    moved = node.emit(MatMul(), node.part_constant("pixels", stacked), turned, part="moved")
    node.emit(Reshape(shape=(images, *sizes, axes)), moved)


def _line(size: int, aligned: bool) -> Array:
    """Places of pixels from -1 to 1: their centres, or with both ends on them."""
    if aligned:
        return np.linspace(-1, 1, size) if size > 1 else np.array([-1.0])
    return (2 * np.arange(size) + 1) / size - 1


RULES: dict[str, ImportRule] = {
    "AffineGrid": ImportRule(import_affine_grid, newest=20),
    "GridSample": ImportRule(import_grid_sample, newest=22),
}
