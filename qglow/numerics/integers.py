"""Arithmetic of plain integers: results wrap around at the ends of their type, as in C and in numpy."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array


def sum_of(a: Array, b: Array) -> Array:
    """`a + b`."""
    with np.errstate(over="ignore"):
        return np.asarray(np.add(a, b), a.dtype)


def difference(a: Array, b: Array) -> Array:
    """`a - b`."""
    with np.errstate(over="ignore"):
        return np.asarray(np.subtract(a, b), a.dtype)


def product(a: Array, b: Array) -> Array:
    """`a * b`."""
    with np.errstate(over="ignore"):
        return np.asarray(np.multiply(a, b), a.dtype)


def quotient(a: Array, b: Array) -> Array:
    """`a / b` rounded towards zero; 0 where `b` is 0. The smallest number by -1 is itself."""
    zero, one = b.dtype.type(0), b.dtype.type(1)
    with np.errstate(all="ignore"):
        whole = np.floor_divide(a, np.where(b == zero, one, b))
        rest = np.subtract(a, np.multiply(whole, b))
        towards_zero = whole + ((rest != zero) & ((a < zero) != (b < zero))).astype(a.dtype)
        if a.dtype.kind == "i":
            towards_zero = np.where(b == -one, np.negative(a), towards_zero)
    return np.asarray(np.where(b == zero, zero, towards_zero), a.dtype)


def power(a: Array, b: Array) -> Array:
    """`a` to the power of `b`; below 0 that is 0, but for an `a` of 1 or -1."""
    base, exponent = np.broadcast_arrays(a, b)
    one = a.dtype.type(1)
    result = np.ones(base.shape, a.dtype)
    factor, rest = base.copy(), exponent.astype(np.uint64)
    with np.errstate(over="ignore"):
        while np.any(rest):
            result = np.where(rest & np.uint64(1), result * factor, result)
            factor, rest = factor * factor, rest >> np.uint64(1)
    if a.dtype.kind == "i":
        unit = (base == one) | (base == -one)
        result = np.where((exponent < 0) & ~unit, a.dtype.type(0), result)
    return np.asarray(result, a.dtype)
