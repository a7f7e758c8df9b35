"""Statistics of the profile for values of the int8 graph, and what integers cost them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from qglow.graph.graph import Value
from qglow.quantization.tensors import TensorRange


def profiled_range(value: Value, ranges: Mapping[str, TensorRange]) -> TensorRange | None:
    """Range of a value, or of the float value that it is the int8 form of; None if neither was profiled."""
    source = value.producer.inputs[0] if value.producer is not None and value.producer.inputs else None
    names = [
        value.name,
        value.name.removesuffix("_int8").removesuffix("_int16"),
        *([] if source is None else [source.name]),
    ]
    return next((ranges[name] for name in names if name in ranges), None)


def histogram_sqnr_db(tensor: TensorRange) -> float | None:
    """Estimate the SQNR in dB of a value by its own rounding and clipping, from its histogram.

    Every element counts as the middle of its bin. None without a histogram, and for a value that is zero.
    """
    if not any(tensor.counts):
        return None
    edges = np.linspace(tensor.seen_low, tensor.seen_high, len(tensor.counts) + 1)
    middles, counts = (edges[1:] + edges[:-1]) / 2.0, np.asarray(tensor.counts, np.float64)
    beyond = middles - np.clip(middles, tensor.low, tensor.high)
    noise = np.where(beyond == 0.0, tensor.scale**2 / 12.0, beyond**2)
    power, lost = float(counts @ middles**2), float(counts @ noise)
    return 10.0 * math.log10(power / lost) if power > 0.0 and lost > 0.0 else None
