"""First and second moments of what the filters of a node see: all that rounding their weights needs."""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Node
from qglow.graph.ops.conv import Conv
from qglow.numerics.windows import output_extents, pad_for_windows, taps

SEED = 20


def grouped(node: Node, weights: Array) -> Array:
    """Weights as [G, O/G, K]: for each group of a Conv, or for the one of a Gemm, rows of its filters."""
    if isinstance(node.operator, Conv):
        group = node.operator.group
        return weights.reshape(group, weights.shape[0] // group, -1)
    return weights.T[None]


def ungrouped(node: Node, rows: Array, weights: Array) -> Array:
    """The inverse of `grouped`, in the shape of `weights`."""
    if isinstance(node.operator, Conv):
        return rows.reshape(weights.shape)
    return np.ascontiguousarray(rows[0].T)


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
        self.count = 0
        self._sums: Array | None = None
        self._products: Array | None = None

    def add(self, x: Array) -> None:
        """Count in a batch of inputs, as reals: [N, C, H, W] of a Conv, [M, K] of a Gemm."""
        for rows in self._rows(np.asarray(x, np.float32)):
            wide = rows.astype(np.float64)
            products = np.matmul(wide.transpose(0, 2, 1), wide)
            if self._sums is None or self._products is None:
                self._sums, self._products = wide.sum(axis=1), products
            else:
                self._sums += wide.sum(axis=1)
                self._products += products
            self.count += rows.shape[1]

    @property
    def means(self) -> Array:
        """float64[G, K]. Raises ValueError before anything was counted."""
        if self._sums is None:
            raise ValueError("nothing was counted")
        return np.asarray(self._sums / self.count)

    def covariance(self, centred: bool) -> Array:
        """float64[G, K, K]: of the windows around their means, or around zero."""
        if self._products is None:
            raise ValueError("nothing was counted")
        products = self._products / self.count
        if centred:
            means = self.means
            products = products - means[:, :, None] * means[:, None, :]
        return np.asarray(products)

    def _rows(self, x: Array) -> list[Array]:
        """float32[G, P, K] for each sample."""
        operator = self._node.operator
        if not isinstance(operator, Conv):
            return [x[None]]
        weights = self._node.inputs[1]
        assert weights is not None
        kernel = (weights.type.shape[2], weights.type.shape[3])
        size = (x.shape[2], x.shape[3])
        extents = output_extents(size, kernel, operator.strides, operator.pads, operator.dilations)
        padded = pad_for_windows(
            x, kernel, operator.strides, operator.pads, operator.dilations, extents, np.float32(0)
        )
        views = list(taps(padded, kernel, operator.strides, operator.dilations, extents))
        found = []
        for sample in range(x.shape[0]):
            chosen = np.unravel_index(self._positions(extents), extents)
            columns = np.stack([view[sample][:, chosen[0], chosen[1]] for view in views], axis=1)
            windows = columns.reshape(operator.group, -1, columns.shape[-1])
            found.append(windows.transpose(0, 2, 1))
        return found

    def _positions(self, extents: tuple[int, int]) -> Array:
        total = math.prod(extents)
        if total <= self._windows:
            return np.arange(total)
        return self._generator.choice(total, self._windows, replace=False)


def moments_bytes(node: Node) -> int:
    """Memory that a node's `WindowMoments` take."""
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
    if isinstance(node.operator, Conv):
        group = node.operator.group
        return group, shape[0] // group, math.prod(shape[1:])
    return 1, shape[1], shape[0]
