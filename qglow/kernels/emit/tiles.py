"""Multiply-accumulate instructions of a target as data: shape, emitter, and reference in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array
from qglow.kernels.emit.builder import Builder, Value

Multiply = Callable[[Builder, Value, Value, Value], Value]
"""Emits int32 sums plus the products of two vectors, of 128 bits up to a whole register."""

Join = Callable[[Builder, Value, Sequence[tuple[Value, Value]]], Value]
"""Emits int32 sums plus the products of several steps, which are added in fewer bits first."""

WRAP = 1 << 32


@dataclass(frozen=True)
class Tile:
    """One multiplication: m x n int32 sums of k products each.

    lhs, rhs: element types of activations and weights ("u8", "s8", "s16").
    reference: the meaning in numpy, `reference(sums, lhs, rhs)`: of a vector (m = 1) sums [n] and operands
        [n * k], k products a lane; of a matrix sums [m, n], lhs [m, k] and rhs [k / 4, n * 4], four products
        a lane and row, or rhs [n, k].
    emit: emits it; None for those of matrix units, which have kernels of their own. The sum of a vector of
        one lane is a scalar.
    by_element: whether an operand may be one 32-bit element of a register, for all lanes, at no cost.
    is_exact: whether it is exact for all operands; else it saturates where two neighbouring products
        leave 16 bits.
    join: emits several steps faster than one after the other, exactly where no sum of neighbouring products
        of all of them leaves 16 bits; None if nothing is faster.
    """

    name: str
    m: int
    n: int
    k: int
    lhs: str
    rhs: str
    reference: Callable[[Array, Array, Array], Array]
    emit: Multiply | None = None
    is_exact: bool = True
    by_element: bool = False
    join: Join | None = None

    def add(self, e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
        """Emit sums plus products of a vector tile. Raises ValueError for a matrix tile."""
        if self.emit is None:
            raise ValueError(f"{self.name} multiplies no vectors")
        return self.emit(e, sums, lhs, rhs)

    def add_all(self, e: Builder, sums: Value, steps: Sequence[tuple[Value, Value]]) -> Value:
        """Emit sums plus products of pairs of operands, for which `join` is exact. Raises as `add`."""
        if self.join is not None and len(steps) > 1:
            return self.join(e, sums, steps)
        for lhs, rhs in steps:
            sums = self.add(e, sums, lhs, rhs)
        return sums

    @property
    def is_vector(self) -> bool:
        """Whether it multiplies vector registers lane by lane."""
        return self.m == 1


def lane_products(sums: Array, lhs: Array, rhs: Array) -> Array:
    """Add the products of each lane's elements to its sum, modulo 2^32: the reference of vector tiles."""
    products = lhs.astype(np.int64) * rhs.astype(np.int64)
    return _wrapped(sums + products.reshape(len(sums), -1).sum(axis=1))


def saturated_pairs(sums: Array, lhs: Array, rhs: Array) -> Array:
    """Add products like `lane_products`, but in pairs that saturate at 16 bits."""
    products = (lhs.astype(np.int64) * rhs.astype(np.int64)).reshape(len(sums), -1, 2)
    pairs = np.clip(products.sum(axis=2), -(1 << 15), (1 << 15) - 1)
    return _wrapped(sums + pairs.sum(axis=1))


def matrix_products(sums: Array, lhs: Array, rhs: Array) -> Array:
    """Add a matrix product to sums, modulo 2^32; a row of `rhs` holds four consecutive k of every column."""
    groups, columns = rhs.shape[0], rhs.shape[1] // 4
    weights = rhs.astype(np.int64).reshape(groups, columns, 4).transpose(0, 2, 1).reshape(groups * 4, columns)
    return _wrapped(sums + lhs.astype(np.int64) @ weights)


def row_products(sums: Array, lhs: Array, rhs: Array) -> Array:
    """Add the products of rows with rows to sums [m, n], modulo 2^32: lhs [m, k], rhs [n, k]."""
    return _wrapped(sums + lhs.astype(np.int64) @ rhs.astype(np.int64).T)


def _wrapped(sums: Array) -> Array:
    return np.asarray((sums + WRAP // 2) % WRAP - WRAP // 2, np.int32)
