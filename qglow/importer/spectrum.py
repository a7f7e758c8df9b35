"""Import of Fourier transforms as products with constant waves, and of windows.

https://onnx.ai/onnx/operators/ BlackmanWindow, DFT, HammingWindow, HannWindow, MelWeightMatrix, STFT
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from qglow.core.memory import require_more_memory
from qglow.core.types import Array, ElementType
from qglow.graph.graph import Value
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.movement import Gather, Pad, Slice
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.tensors import ELEMENTS, element_name


def waves(size: int, bins: int, inverse: bool = False) -> Array:
    """Real and imaginary parts of e^(-2 pi i n k / size), or of its inverse's, as float64 [2, size, bins]."""
    # The product is reduced before it is multiplied by pi, which keeps large ones exact.
    angles = 2 * np.pi / size * (np.outer(np.arange(size), np.arange(bins)) % size)
    sign, scale = (1.0, 1 / size) if inverse else (-1.0, 1.0)
    return np.stack([np.cos(angles), sign * np.sin(angles)]) * scale


def import_dft(node: ImportNode) -> None:
    """Import DFT along a constant axis: a product with waves. The last axis has real and imaginary parts."""
    x, rank = node.value(0), node.rank()
    node.require(x.type.element is ElementType.FLOAT, f"input is {x.type}; only float is supported")
    node.require(
        rank >= 2 and x.type.shape[-1] in (1, 2), f"the last axis of {x.type} is not real or complex"
    )
    old = node.opset < 20
    given = node.integer("axis", 1) if old else int(node.scalar(2, "the axis", -2))
    axis = node.axis(given, rank)
    node.require(axis < rank - 1, "the axis is that of the parts")
    inverse, one_sided = node.integer("inverse", 0) != 0, node.integer("onesided", 0) != 0
    to_real = inverse and one_sided
    node.require(not to_real or x.type.shape[-1] == 2, f"an inverse from one side of {x.type}, which is real")
    given_size = x.type.shape[axis]
    size = int(node.scalar(1, "the length", 2 * (given_size - 1) if to_real else given_size))
    node.require(size > 0, f"length {size}")
    bins = size // 2 + 1 if one_sided else size
    read, made = (bins, size) if inverse else (size, bins)
    _require_memory(node, 4 * size * bins)
    x = _resized(node, x, axis, read)
    perm = (*(i for i in range(rank) if i not in (axis, rank - 1)), axis, rank - 1)
    x = node.emit(Transpose(perm=perm), x, part="last")
    outer, parts = x.type.shape[:-2], x.type.shape[-1]
    x = node.emit(Reshape(shape=(*outer, read * parts)), x, part="line")
    if to_real:
        table = node.part_constant("waves", _waves_to_real(size))
    else:
        table = _matrix(node, waves(size, bins, inverse), parts)
    product = node.emit(MatMul(), x, table, part="product")
    apart = node.emit(Reshape(shape=(*outer, made, 1 if to_real else 2)), product, part="bins")
    node.emit(Transpose(perm=tuple(int(i) for i in np.argsort(perm))), apart)


def _waves_to_real(size: int) -> Array:
    """The matrix [bins * 2, size] from one side of a spectrum to the real signal, as float32.

    The other side is the same turned around, but for the constant and, of an even size, the highest wave.
    """
    real, imaginary = waves(size, size // 2 + 1, inverse=True)
    twice = np.full(real.shape[1], 2.0)
    twice[0] = 1.0
    if size % 2 == 0:
        twice[-1] = 1.0
    parts = np.stack([real * twice, -imaginary * twice], axis=-1)
    return parts.reshape(size, -1).T.astype(np.float32)


def _resized(node: ImportNode, x: Value, axis: int, size: int) -> Value:
    """Cut an axis, or fill it up with zeros."""
    shape = list(x.type.shape)
    have, zero = shape[axis], [0] * len(shape)
    if size < have:
        shape[axis] = size
        return node.emit(Slice(tuple(zero), tuple(shape), (1,) * len(shape)), x, part="cut")
    if size > have:
        after = [size - have if i == axis else 0 for i in range(len(shape))]
        return node.emit(Pad(pads=(*zero, *after)), x, part="filled")
    return x


def _matrix(node: ImportNode, wave: Array, parts: int) -> Value:
    """The matrix [size * parts, bins * 2] of a product with complex waves."""
    real, imaginary = wave
    rows = [np.stack([real, imaginary], axis=-1), np.stack([-imaginary, real], axis=-1)]
    table = np.stack(rows[:parts], axis=1)
    return node.part_constant("waves", table.reshape(len(real) * parts, -1).astype(np.float32))


def import_stft(node: ImportNode) -> None:
    """Import STFT of real signals: the product of frames with windowed waves."""
    signal, shape = node.value(0), node.kind().shape
    real = len(shape) == 2 or (len(shape) == 3 and shape[-1] == 1)
    node.require(real and signal.type.is_float, f"signal is {signal.type}; real ones [N, L, 1] are supported")
    step = int(node.scalar(1, "the step of frames", 0))
    window = node.optional_array(2, "the window")
    default = window.size if window is not None else 0
    size = int(node.scalar(3, "the length of frames", default))
    node.require(
        0 < size <= shape[1] and step > 0, f"frames of {size} every {step} in a signal of {shape[1]}"
    )
    node.require(window is None or window.size == size, "the window is not as long as a frame")
    bins = size // 2 + 1 if node.integer("onesided", 1) else size
    _require_memory(node, 2 * size * bins)
    frames = (shape[1] - size) // step + 1
    _require_memory(node, frames * size)
    places = np.arange(frames)[:, None] * step + np.arange(size)
    table = waves(size, bins) * (1.0 if window is None else window.astype(np.float64)[:, None])
    line = node.emit(Reshape(shape=shape[:2]), signal, part="line")
    cut = node.emit(Gather(axis=1), line, node.part_constant("places", places), part="frames")
    product = node.emit(MatMul(), cut, _matrix(node, table, 1), part="product")
    node.emit(Reshape(shape=(shape[0], frames, bins, 2)), product)


def _window(weights: Sequence[float]) -> Callable[[ImportNode], None]:
    """Import a window: the sum of cosines of 0, 1, 2 ... turns with these weights."""

    def rule(node: ImportNode) -> None:
        size = int(node.scalar(0, "the length", 0))
        node.require(size >= 0, f"length {size}")
        _require_memory(node, size)
        number = node.integer("output_datatype", 1)
        node.require(number in ELEMENTS, f"a result of {element_name(number)}")
        turns = size if node.integer("periodic", 1) else max(size - 1, 1)
        angles = 2 * np.pi * np.arange(size) / max(turns, 1)
        values = np.sum([weight * np.cos(turn * angles) for turn, weight in enumerate(weights)], axis=0)
        node.constant(np.asarray(values, ELEMENTS[number].dtype))

    return rule


def import_mel_weight_matrix(node: ImportNode) -> None:
    """Import MelWeightMatrix: triangles between frequencies at equal steps of the mel scale."""
    bands, length, rate = (int(node.scalar(i, "a size", 0)) for i in range(3))
    low, high = (node.scalar(i, "a frequency", 0.0) for i in (3, 4))
    number = node.integer("output_datatype", 1)
    node.require(number in ELEMENTS, f"a result of {element_name(number)}")
    node.require(bands > 0 and length > 0 and rate > 0, "sizes are not positive")
    spectrum = length // 2 + 1
    _require_memory(node, spectrum * bands)
    first, last = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    mels = first + np.arange(bands + 2) * (last - first) / (bands + 2)
    edges = np.floor((length + 1) * (700 * (10 ** (mels / 2595) - 1)) / rate).astype(np.int64)
    node.require(edges.min() >= 0 and edges.max() <= spectrum, f"frequencies from {low} to {high}")
    node.constant(_triangles(edges, spectrum).astype(ELEMENTS[number].dtype))


def _triangles(edges: Array, spectrum: int) -> Array:
    """Triangles over three neighbouring edges each: a rise to the second, then a fall to the third."""
    places = np.arange(spectrum)
    table = np.zeros((spectrum, len(edges) - 2))
    for band, (low, middle, high) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        if low == middle:
            table[middle : middle + 1, band] = 1
        else:
            rise = (places >= low) & (places <= middle)
            table[rise, band] = (places[rise] - low) / (middle - low)
        if high > middle:
            fall = (places >= middle) & (places < high)
            table[fall, band] = (high - places[fall]) / (high - middle)
    return table


def _require_memory(node: ImportNode, numbers: int) -> None:
    require_more_memory(8 * numbers, f"node '{node.name}'")


RULES: dict[str, ImportRule] = {
    "BlackmanWindow": ImportRule(_window((0.42, -0.5, 0.08)), newest=17),
    "DFT": ImportRule(import_dft, newest=20),
    "HammingWindow": ImportRule(_window((25 / 46, -21 / 46)), newest=17),
    "HannWindow": ImportRule(_window((0.5, -0.5)), newest=17),
    "MelWeightMatrix": ImportRule(import_mel_weight_matrix, newest=17),
    "STFT": ImportRule(import_stft, newest=17),
}
