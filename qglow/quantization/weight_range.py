"""Choice of the largest magnitude of int8 weights: that of the largest weight, or less to reduce the error.

Cutting off the few largest weights of an output channel leaves finer steps for the others. The limit is
the one with the least squared error of the rounded weights, among fractions of the largest weight
(as in R. Banner et al., "Post training 4-bit quantization of convolutional networks", NeurIPS 2019, but
searched and not derived from an assumed distribution).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array
from qglow.numerics.weights import WEIGHT_MAX
from qglow.quantization.weights import FloatWeights

PASS = "weight-range"
FRACTIONS = np.linspace(1.0, 0.5, 101)
"""Candidate ranges as fractions of the largest magnitude; of equally good ones the first is taken."""


def with_least_error(source: FloatWeights, per_tensor: bool, where: str, log: PassLog) -> FloatWeights:
    """Return the weights with the limits of least squared error; `where` is the node's name for the log.

    per_tensor: one limit for all channels. A bias that needs a larger scale than the limit still gets it.
    """
    if source.given is not None or not source.weights.size or not np.all(np.isfinite(source.weights)):
        return source
    rows = np.moveaxis(source.weights.astype(np.float64), source.axis, 0)
    rows = rows.reshape(rows.shape[0], -1)
    limits, before, after = _search(rows.reshape(1, -1) if per_tensor else rows)
    if not after < before:
        log.refused(where, "no limit below the largest weight has less error")
        return source
    gain = f"by {10 * math.log10(before / after):.2f} dB" if after > 0.0 else "to 0"
    cut = int(np.count_nonzero(np.abs(rows) > limits[:, None]))
    log.applied(where, f"{cut} of {rows.size} weights clipped: squared error of weights falls {gain}", False)
    return replace(source, limits=np.broadcast_to(limits, rows.shape[:1]).copy())


def _search(rows: Array) -> tuple[Array, float, float]:
    """Limits float64[R] of the rows [R, K], and the sum of squared errors without them and with them."""
    largest = np.max(np.abs(rows), axis=1)
    steps = np.where(largest > 0.0, largest, 1.0) / WEIGHT_MAX
    units = rows / steps[:, None]
    best = np.full(largest.shape, np.inf)
    fractions = np.ones_like(largest)
    before = 0.0
    for fraction in FRACTIONS:
        rounded = np.clip(np.rint(units / fraction), -WEIGHT_MAX, WEIGHT_MAX) * fraction
        errors = np.sum((units - rounded) ** 2, axis=1) * steps**2
        if fraction == FRACTIONS[0]:
            before = float(errors.sum())
        better = errors < best
        best = np.where(better, errors, best)
        fractions = np.where(better, fraction, fractions)
    return largest * fractions, before, float(best.sum())
