"""Channels that do not suit the one scale of their value: constant (dead) ones and outliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.profiling.histogram import ValueProfile

OUTLIER = 8.0
"""A channel is an outlier if it reaches more than so many times as far as the median: it costs 3 bits."""


@dataclass(frozen=True, slots=True)
class ChannelRanges:
    """Indices of the constant (dead) channels of a value and of those that reach far beyond the rest.

    channels: number of all channels. largest: the largest magnitude in the value over the median of the
    largest magnitudes of its live channels.
    """

    channels: int
    dead: tuple[int, ...]
    outliers: tuple[int, ...]
    largest: float


def channel_ranges(profile: ValueProfile) -> ChannelRanges | None:
    """Return the dead channels and outliers of a value; None if it has no channels with finite ranges."""
    channels = profile.channels
    if channels is None or not np.isfinite(channels.low).all() or not np.isfinite(channels.high).all():
        return None
    live = channels.low < channels.high
    reach = np.maximum(np.abs(channels.low), np.abs(channels.high)).astype(np.float64)
    median = float(np.median(reach[live])) if live.any() else 0.0
    relative = reach / median if median > 0.0 else np.ones_like(reach)
    outliers = live & (relative > OUTLIER)
    return ChannelRanges(
        int(live.size),
        tuple(np.flatnonzero(~live).tolist()),
        tuple(np.flatnonzero(outliers).tolist()),
        float(np.max(relative[live], initial=1.0)),
    )
