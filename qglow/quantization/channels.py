"""What the channels of a value say of its one scale: some may be dead, some much larger than the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.profiling.histogram import ValueProfile

OUTLIER = 8.0
"""A channel is an outlier where it reaches so many times as far as the median: three bits more."""


@dataclass(frozen=True, slots=True)
class ChannelRanges:
    """Of so many channels, numbers of those that are constant, and of those that reach far beyond the rest.

    largest: how many times as far as the median of the live channels the largest one reaches.
    """

    channels: int
    dead: tuple[int, ...]
    outliers: tuple[int, ...]
    largest: float


def channel_ranges(profile: ValueProfile) -> ChannelRanges | None:
    """Findings on the channels of a value; None where it has none or nothing is known of them."""
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
