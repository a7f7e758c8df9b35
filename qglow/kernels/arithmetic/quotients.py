"""Quotients that become int8, mostly without a division.

Rule 1 of the numeric contract rounds the float32 quotient x / s to an integer. A product with the reciprocal
of s is at most 2^-14 away from that quotient wherever both lie within 255, the largest distance of int8 from
a zero point. Both round to the same integer unless one of them is as close as that to the middle between two
integers. Such vectors, about one in 500, are divided.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from qglow.kernels.arithmetic.scalar import emit_scalar
from qglow.kernels.emit.builder import I1, Number, PerCall, Value, scalar
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import CodeSize
from qglow.numerics.scalar.clamps import clip

CERTAIN = 0.5 - 2.0**-14
"""Largest distance from an integer at which the product with a reciprocal rounds as the quotient does.

Two roundings of the product and one of the quotient are less than 255 * 3 * 2^-24 < 2^-14 in all.
"""
LEAST_DIVISOR, LARGEST_DIVISOR = 2.0**-100, 2.0**122
"""Bounds of divisors whose reciprocals are normal numbers; scales of rows lie within."""
CHECK_CYCLES = 5.0
"""Cycles that a product and its check take; where divisions take no longer, they are left."""


def saves_divisions(e: Emitter) -> bool:
    """Whether this target gains by products in place of divisions."""
    return e.target.size is CodeSize.FAST and e.target.model.division_cycles > CHECK_CYCLES


def reciprocal(e: Emitter, divisor: Number, kind: Value) -> Value | None:
    """Vector of 1 / divisor, computed once a call.

    None for a known divisor whose reciprocal is not normal, or is exact: LLVM divides by products then. For a
    divisor known only at run time, NaN where the reciprocal is not normal: no product is certain of it.
    """
    if not isinstance(divisor, PerCall):
        is_power = math.frexp(divisor)[0] == 0.5
        if is_power or not LEAST_DIVISOR <= float(divisor) <= LARGEST_DIVISOR:
            return None
        return scalar(kind, float(np.float32(1.0) / np.float32(divisor)))
    with e.at_entry():
        return safe_reciprocal(e, divisor.spread(kind))


def safe_reciprocal(e: Emitter, divisor: Value) -> Value:
    """Emit 1 / divisor of a scalar or a vector, NaN where that is no normal number."""
    kind = divisor.type
    least, largest = (scalar(kind, bound) for bound in (LEAST_DIVISOR, LARGEST_DIVISOR))
    fits = e.b.and_(e.b.fcmp_ordered(">=", divisor, least), e.b.fcmp_ordered("<=", divisor, largest))
    found = e.b.fdiv(scalar(kind, 1.0), divisor)
    return e.b.select(fits, found, scalar(kind, math.nan))


def rounded_quotients(
    e: Emitter, value: Value, inverse: Value, bounds: tuple[Number, Number], divided: Callable[[], Value]
) -> Value:
    """Emit quotients clamped to bounds within 255 and rounded half to even to int32.

    inverse: the reciprocal of the divisor, or NaN. divided: emits the same by a division, for all lanes.
    """
    product = emit_scalar(e, lambda x: clip(x, *bounds), e.b.fmul(value, inverse))
    steps = e.target.round_to_words(e, product)
    distance = e.intrinsic("llvm.fabs", e.b.fsub(product, e.b.sitofp(steps, product.type)))
    doubtful = e.b.fcmp_unordered(">", distance, scalar(product.type, CERTAIN))
    any_lane = e.call(f"llvm.vector.reduce.or.v{product.type.count}i1", I1, [doubtful])
    return e.replaced(any_lane, steps, divided)
