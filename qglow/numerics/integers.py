"""Arithmetic of plain integers: results wrap around at the ends of their type, as in C and in numpy."""

from __future__ import annotations

from collections.abc import Callable

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


def remainder(a: Array, b: Array) -> Array:
    """`a` less `b` times their quotient, with the sign of `a`; 0 where `b` is 0."""
    rest = difference(a, product(quotient(a, b), b))
    return np.asarray(np.where(b == b.dtype.type(0), b.dtype.type(0), rest), a.dtype)


def modulo(a: Array, b: Array) -> Array:
    """The remainder with the sign of `b`, as Python has it; 0 where `b` is 0."""
    rest, zero = remainder(a, b), a.dtype.type(0)
    turned = (rest != zero) & ((rest < zero) != (b < zero))
    return np.asarray(np.where(turned, sum_of(rest, b), rest), a.dtype)


def shifted_left(a: Array, b: Array) -> Array:
    """`a` moved to the left by `b` bits; 0 where that is below 0 or as many as there are."""
    width = 8 * a.dtype.itemsize
    bits, places = a.view(f"u{a.itemsize}"), b.astype(f"u{b.itemsize}")
    moved = np.left_shift(bits, np.where(places < width, places, 0).astype(bits.dtype))
    return np.asarray(np.where(places < width, moved, 0).astype(bits.dtype).view(a.dtype))


def shifted_right(a: Array, b: Array) -> Array:
    """`a` moved to the right by `b` bits, with copies of the sign; beyond the ends only these are left."""
    width = 8 * a.dtype.itemsize
    places = b.astype(f"u{b.itemsize}")
    inside = places < width
    moved = np.right_shift(a, np.where(inside, places, width - 1).astype(a.dtype))
    keeps = inside | (a < a.dtype.type(0))
    return np.asarray(np.where(keeps, moved, a.dtype.type(0)), a.dtype)


OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "left": shifted_left,
    "right": shifted_right,
    "remainder": remainder,
    "modulo": modulo,
}
"""What only integers have, of two operands that are broadcast, by name."""
