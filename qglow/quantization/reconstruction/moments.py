"""First and second moments of the inputs of a node's filters: all that rounding their weights needs."""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Node
from qglow.graph.traits import Filters
from qglow.numerics.windows import output_extents, pad_for_windows, taps

SEED = 20
WAITING = 512
"""Least number of windows that are multiplied at once."""


def grouped(node: Node, weights: Array) -> Array:
    """Weights as [G, O/G, K]: a row for each filter of each group."""
    rows = _filters(node).rows(weights)
    return rows.reshape(*rows.shape[:2], -1)


def ungrouped(node: Node, rows: Array, weights: Array) -> Array:
    """The inverse of `grouped`, in the shape of `weights`."""
    return _filters(node).weights(rows, weights.shape)


def _filters(node: Node) -> Filters:
    filters = node.operator.filters
    assert filters is not None, f"{node} has weights"
    return filters


class WindowMoments:
    """Sums over windows of a node's input, as float64: [G, K] and [G, K, K].

    A convolution has one window for each element of a plane of its result; `windows_a_sample` of them,
    drawn anew for every sample, are counted. A Gemm has one for each row of its input. Zeros of the
    padding are part of a window.
    """

    def __init__(self, node: Node, windows_a_sample: int) -> None:
        self._node = node
        self._windows = windows_a_sample
        self._generator = np.random.default_rng(SEED)
        self._waiting: list[Array] = []
        self._counted = 0
        self._sums: Array | None = None
        self._products: Array | None = None

    def add(self, x: Array) -> None:
        """Count in a batch of inputs, as reals: [N, C, H, W] under a window, else [M, K]."""
        for rows in self._rows(np.asarray(x, np.float32)):
            self._waiting.append(rows)
            if sum(waiting.shape[1] for waiting in self._waiting) >= WAITING:
                self._count()

    def _count(self) -> None:
        """Add up the waiting windows at once, so that the K by K sums pass through memory once for all."""
        if not self._waiting:
            return
        wide = np.concatenate(self._waiting, axis=1).astype(np.float64)
        self._waiting = []
        groups, count, length = wide.shape
        if self._sums is None or self._products is None:
            self._sums, self._products = np.zeros((groups, length)), np.zeros((groups, length, length))
        self._sums += wide.sum(axis=1)
        if groups == 1:
            # BLAS computes only one half of the product of a 2-D array with its own transpose.
            self._products[0] += wide[0].T @ wide[0]
        else:
            self._products += np.matmul(wide.transpose(0, 2, 1), wide)
        self._counted += count

    @property
    def count(self) -> int:
        """Number of windows."""
        self._count()
        return self._counted

    @property
    def means(self) -> Array:
        """float64[G, K]. Raises ValueError before anything was counted."""
        count = self.count
        if self._sums is None:
            raise ValueError("nothing was counted")
        return np.asarray(self._sums / count)

    def covariance(self, centred: bool) -> Array:
        """Return the covariance of the windows around their means, or around zero; float64[G, K, K]."""
        count = self.count
        if self._products is None:
            raise ValueError("nothing was counted")
        products = self._products / count
        if centred:
            means = self.means
            products = products - means[:, :, None] * means[:, None, :]
        return np.asarray(products)

    def _rows(self, x: Array) -> list[Array]:
        """float32[G, P, K] for each sample."""
        window = self._node.operator.window(self._node.input_types())
        if window is None:
            return [x[None]]
        groups, kernel = _filters(self._node).groups, window.kernel
        size = (x.shape[2], x.shape[3])
        extents = output_extents(size, kernel, window.strides, window.pads, window.dilations)
        padded = pad_for_windows(
            x, kernel, window.strides, window.pads, window.dilations, extents, np.float32(0)
        )
        views = list(taps(padded, kernel, window.strides, window.dilations, extents))
        found = []
        for sample in range(x.shape[0]):
            chosen = np.unravel_index(self._positions(extents), extents)
            columns = np.stack([view[sample][:, chosen[0], chosen[1]] for view in views], axis=1)
            windows = columns.reshape(groups, -1, columns.shape[-1])
            found.append(windows.transpose(0, 2, 1))
        return found

    def _positions(self, extents: tuple[int, int]) -> Array:
        total = math.prod(extents)
        if total <= self._windows:
            return np.arange(total)
        return self._generator.choice(total, self._windows, replace=False)


def shrunk(moments: Array, count: int) -> Array:
    """Second moments [..., K, K] of so many rows, with (K / count)^2 of their mean added to every variance.

    Few rows seem to depend on each other: of as many as there are inputs the inverse follows chance alone.
    Of O. Ledoit and M. Wolf, "A well-conditioned estimator for large-dimensional covariance matrices"
    (2004), is the target; with K / count itself, many rows of dependent inputs lost more than few gained.
    """
    length = moments.shape[-1]
    typical = np.trace(moments, axis1=-2, axis2=-1)[..., None, None] / length
    return np.asarray(moments + np.eye(length) * (typical * (length / max(count, 1)) ** 2))


def moments_bytes(node: Node) -> int:
    """Bytes of memory that a node's `WindowMoments` take."""
    weights = node.inputs[1]
    assert weights is not None
    group, _, length = _grouped_shape(node, weights.type.shape)
    return 8 * group * length * (length + 1)


def window_length(node: Node) -> int:
    """K: the number of inputs that each output of the node is a sum over."""
    weights = node.inputs[1]
    assert weights is not None
    return _grouped_shape(node, weights.type.shape)[2]


def _grouped_shape(node: Node, shape: tuple[int, ...]) -> tuple[int, int, int]:
    filters = _filters(node)
    outputs = shape[filters.outputs]
    return filters.groups, outputs // filters.groups, math.prod(shape) // max(outputs, 1)
