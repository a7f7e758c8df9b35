"""A detector as Ultralytics exports it: quantized by onnxruntime's static tool, and in float16.

The body has SiLU as Sigmoid and Mul, a block that is split and joined again, and a pyramid of pools; the head
joins two strides, turns distributions over distances into boxes (Softmax, then a convolution that is a mean),
and gives boxes and scores in one tensor. The tool puts a QuantizeLinear and DequantizeLinear behind each of
these, int32 biases behind the scale of their products, and one pair of parameters on both sides of movement.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qglow.core.types import Array
from tests.unit.importer.foreign_writer import ForeignWriter

BINS, CLASSES, SIZE = 4, 3, 16


def quantized_detector(activations: type = np.uint8, per_channel: bool = False) -> ForeignWriter:
    """With all activations quantized."""
    w = ForeignWriter({"images": _picture()}, activations, 13)
    axis = 0 if per_channel else None

    def conv(value: str, *shape: int) -> str:
        weights, bias = w.weights_and_bias(w.given(value), *shape, axis=axis)
        return w.quantized(w.node("Conv", value, weights, bias, **_shape(shape)))

    def moved(value: str, kind: str, *inputs: str, **attributes: object) -> str:
        return w.quantized(w.node(kind, value, *inputs, **attributes), w.given(value))

    _detector(w, w.quantized("images"), conv, w.quantized, moved)
    return w


def half_detector() -> ForeignWriter:
    """With weights and activations in float16, float32 at both ends."""
    w = ForeignWriter({"images": _picture()}, np.uint8, 17)

    def conv(value: str, *shape: int) -> str:
        weights = w.constant(w.rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape), np.float16)
        return w.node("Conv", value, weights, w.constant(np.zeros(shape[0]), np.float16), **_shape(shape))

    def moved(value: str, kind: str, *inputs: str, **attributes: object) -> str:
        return w.node(kind, value, *inputs, **attributes)

    start = w.node("Cast", "images", to=10)
    _detector(w, start, conv, lambda value: value, moved, np.float16)
    w.outputs = [w.node("Cast", w.outputs[0], to=1)]
    return w


def _detector(
    w: ForeignWriter,
    start: str,
    conv: Callable[..., str],
    behind: Callable[[str], str],
    moved: Callable[..., str],
    dtype: type = np.float32,
) -> None:
    def silu(value: str) -> str:
        return behind(w.node("Mul", value, behind(w.node("Sigmoid", value))))

    def pooled(value: str) -> str:
        return moved(value, "MaxPool", kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1])

    near = silu(conv(start, 8, 3, 3, 3))
    halves = w.several("Split", 2, near, w.constant([4, 4], np.int64), axis=1)
    left, right = (behind(half) for half in halves)
    right = behind(w.node("Add", right, silu(conv(right, 4, 4, 3, 3))))
    near = silu(conv(behind(w.node("Concat", left, right, axis=1)), 8, 8, 1, 1))
    deep = moved(near, "MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    pools = [deep, pooled(deep), pooled(pooled(deep))]
    deep = silu(conv(behind(w.node("Concat", *pools, axis=1)), 8, 24, 1, 1))
    scales = w.constant([1, 1, 2, 2])
    wide = moved(deep, "Resize", "", scales, mode="nearest", coordinate_transformation_mode="asymmetric",
                 nearest_mode="floor")  # fmt: skip
    near = silu(conv(behind(w.node("Concat", wide, near, axis=1)), 8, 16, 1, 1))
    levels = []
    for level, places in ((near, SIZE**2), (deep, SIZE**2 // 4)):
        parts = [conv(level, 4 * BINS, 8, 1, 1), conv(level, CLASSES, 8, 1, 1)]
        both = behind(w.node("Concat", *parts, axis=1))
        levels.append(moved(both, "Reshape", w.constant([1, 4 * BINS + CLASSES, places], np.int64)))
    _head(w, behind(w.node("Concat", *levels, axis=2)), conv, behind, moved, dtype)


def _head(
    w: ForeignWriter,
    joined: str,
    conv: Callable[..., str],
    behind: Callable[[str], str],
    moved: Callable[..., str],
    dtype: type,
) -> None:
    places = SIZE**2 * 5 // 4
    split = w.constant([4 * BINS, CLASSES], np.int64)
    distances, logits = map(behind, w.several("Split", 2, joined, split, axis=1))
    bins = moved(distances, "Reshape", w.constant([1, 4, BINS, places], np.int64))
    bins = moved(bins, "Transpose", perm=[0, 2, 1, 3])
    mean = conv(behind(w.node("Softmax", bins, axis=1)), 1, BINS, 1, 1)
    sides = moved(mean, "Reshape", w.constant([1, 4, places], np.int64))
    ends = [w.constant([n], np.int64) for n in (0, 2, 4, 1)]
    low = moved(sides, "Slice", ends[0], ends[1], ends[3])
    high = moved(sides, "Slice", ends[1], ends[2], ends[3])
    anchors = w.constant(w.rng.uniform(0, SIZE, (1, 2, places)), dtype)
    if dtype is np.float32:
        anchors = behind(anchors)
    first, second = behind(w.node("Sub", anchors, low)), behind(w.node("Add", anchors, high))
    centre = behind(w.node("Div", behind(w.node("Add", first, second)), w.constant(2, dtype)))
    boxes = behind(w.node("Concat", centre, behind(w.node("Sub", second, first)), axis=1))
    scores = behind(w.node("Sigmoid", logits))
    w.outputs = [behind(w.node("Concat", boxes, scores, axis=1))]


def _picture() -> Array:
    return np.random.default_rng(7).uniform(0, 1, (1, 3, SIZE, SIZE)).astype(np.float32)


def _shape(shape: tuple[int, ...]) -> dict[str, object]:
    return {"kernel_shape": list(shape[2:]), "pads": [shape[2] // 2] * 4}
